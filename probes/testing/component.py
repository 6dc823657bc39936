"""Rules for every component."""

from __future__ import annotations

import pickle

import yaml

from probes.component import Component


def check_component(component: Component) -> None:
    """Check the rules for every component: it survives YAML and pickle, cannot be changed, and describes its fields.

    Raises:
        AssertionError: it breaks a rule; the message says which.
    """
    cls = type(component)
    written = component.model_dump(mode="json", by_alias=True, exclude_none=True)
    read = cls.model_validate(yaml.safe_load(yaml.safe_dump(written)))
    assert read == component, f"`{component.kind}` is read back from YAML as {read!r}, but was {component!r}"
    assert pickle.loads(pickle.dumps(component)) == component, f"`{component.kind}` does not survive pickle"
    assert cls.model_config.get("frozen"), f"`{cls.__name__}` can be changed; a component is frozen"
    assert cls.model_config.get("extra") == "forbid", f"`{cls.__name__}` accepts unknown keys"
    assert cls.__doc__, f"`{cls.__name__}` has no docstring; the reference shows it"
    for name, field in cls.model_fields.items():
        assert name == "kind" or field.description, f"field `{name}` of `{component.kind}` has no description"
    assert component.kind == cls.model_fields["kind"].default, f"`{cls.__name__}` has no default for `kind`"
