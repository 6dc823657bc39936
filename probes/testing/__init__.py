"""The conformance kit for authors of kinds: `check_transform`, `check_edit` and `check_sink` try what every kind must do.

Each fails with an AssertionError whose message says which rule is broken, and for what value.
"""

from probes.optional_package import require_torch

require_torch("`probes.testing`")

from probes.testing.component import check_component as check_component  # noqa: E402  # torch is required first
from probes.testing.edit import check_edit as check_edit  # noqa: E402  # torch is required first
from probes.testing.sink import check_sink as check_sink  # noqa: E402  # torch is required first
from probes.testing.transform import check_transform as check_transform  # noqa: E402  # torch is required first
from probes.testing.values import example as example  # noqa: E402  # torch is required first
