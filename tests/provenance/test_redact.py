from __future__ import annotations

from pathlib import Path
from time import perf_counter, process_time

import pytest

from probes.provenance import collect
from probes.provenance.redact import redacted, redacted_source, redacted_table, redacted_value

TAIL = "c4n4ry" * 6


@pytest.mark.parametrize(
    "argv",
    [
        ("--api-key", TAIL),
        ("--api-key=" + TAIL,),
        ("--set", "api_key=" + TAIL),
        ("--set", "logger.token=" + TAIL),
        ("+logger.wandb.api_key=" + TAIL,),
        ("password=" + TAIL,),
        ("--db-password", TAIL),
        ("--token", TAIL),
        ("--hf_token=" + TAIL,),
        ("--aws-secret-access-key=" + TAIL,),
        ("--credentials", TAIL),
        ("hf_" + TAIL,),
        ("--note=ghp_" + TAIL,),
        ("github_pat_" + TAIL,),
        ("glpat-" + TAIL,),
        ("sk-proj-" + TAIL,),
        ("sk_live_" + TAIL,),
        ("xoxb-" + TAIL,),
        ("npm_" + TAIL,),
        ("AIza" + TAIL,),
        (f"eyJ{TAIL}.eyJ{TAIL}.{TAIL}",),
        ("postgres://ada:" + TAIL + "@example.org/db",),
        ("https://" + TAIL + "@example.org/digits",),
        ("https://example.org/digits?access_token=" + TAIL + "&x=1",),
        ("https://example.org/digits?x=1&X-Amz-Signature=" + TAIL,),
        ("--header", "Authorization: Bearer " + TAIL + "1"),
        ("--header", "authorization: token " + TAIL + "1"),
        ("--header", "Authorization: Basic " + TAIL + "="),
        ("--wandb-key", TAIL),
        ("--wandb_key=" + TAIL,),
        ("--comet-key=" + TAIL,),
        ("--pass", TAIL),
        ("--db-pass=" + TAIL,),
        ("--openai_key", TAIL),
    ],
    ids=" ".join,
)
def test_a_secret_in_the_arguments_is_masked(argv: tuple[str, ...]) -> None:
    found = " ".join(redacted(argv))
    assert "c4n4ry" not in found
    assert "***" in found


def test_an_aws_key_is_masked() -> None:
    assert redacted(("AKIAIOSFODNN7EXAMPLE",)) == ("***",)


def test_text_that_is_not_a_secret_is_not_masked() -> None:
    argv = ("--tokenizer", "bert", "--pad-token", "0", "--key", "k", "--lr", "0.1", "--monkey=7", "optimizer.lr=0.1", "s3://bucket/a@b")
    assert redacted(argv) == argv
    assert redacted(("--password", "--lr", "0.1")) == ("--password", "--lr", "0.1")
    assert redacted(("a" * 40, "git@example.org:a/b")) == ("a" * 40, "git@example.org:a/b")


def test_tags_are_masked_by_their_names_and_values() -> None:
    assert redacted_table({"api_key": "a", "note": "hf_" + TAIL, "seed": "1"}) == {"api_key": "***", "note": "***", "seed": "1"}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('+API_KEY = "{}"', '+API_KEY = "***"'),
        ("+    password='{}',", "+    password='***',"),
        ('+    "api_key": "{}",', '+    "api_key": "***",'),
        ('+os.environ["WANDB_API_KEY"] = "{}"', '+os.environ["WANDB_API_KEY"] = "***"'),
        ('+password: str = "{}"', '+password: str = "***"'),
        ('+secret = """{}"""', '+secret = """***"""'),
        ('+token = "{}"', '+token = "***"'),
        ("+WANDB_API_KEY={}", "+WANDB_API_KEY=***"),
        ("+export HF_TOKEN={}", "+export HF_TOKEN=***"),
        ("+  api_key: {}", "+  api_key: ***"),
        ("-  password: {}  # of the cluster", "-  password: ***  # of the cluster"),
        ('+login("hf_{}")', '+login("***")'),
        ('+wandb.login(key="{}")', '+wandb.login(key="***")'),
        ('+wandb.login("{}")', '+wandb.login("***")'),
        ('+wandb_key = "{}"', '+wandb_key = "***"'),
        ("+-----BEGIN PRIVATE KEY-----\n+{0}\n+{0}\n+-----END PRIVATE KEY-----", None),
    ],
)
def test_a_secret_in_a_difference_of_sources_is_masked(line: str, kept: str | None) -> None:
    found = redacted_source(f"+a = 1\n{line.format(TAIL)}\n+b = 2\n".encode()).decode()
    assert "c4n4ry" not in found
    assert found.startswith("+a = 1\n")
    assert found.endswith("\n+b = 2\n")
    assert kept is None or f"\n{kept}\n" in found


SOURCE = """
+token = tokens[0]
+token = "<mask>"
+pad_token = "</s>"
+password = getpass()
+api_key = os.environ["API_KEY"]
+def login(password: str | None = None) -> None:
+    keys = model(tokens, key=query)
 https://example.org/a?b=c
"""


def test_code_that_only_mentions_secrets_is_not_masked() -> None:
    assert redacted_source(SOURCE.encode()).decode() == SOURCE
    assert redacted_source(b"+a = '\xff\xfe'\n") == b"+a = '\xff\xfe'\n"


@pytest.mark.parametrize("piece", ["a-", "api_key", "+AAAA\n", "-----\n", "://a", "eyJaaaaaaaa.", "password: ", "?key=&", '"\\', "token."])
def test_masking_takes_time_in_proportion_to_the_text(piece: str) -> None:
    began = perf_counter()
    redacted_source((piece * (200_000 // len(piece))).encode())
    redacted_value(piece * 2_000)
    assert perf_counter() - began < 5


def test_a_tenth_of_the_sources_that_a_run_may_keep_is_masked_soon() -> None:
    page = Path(collect.__file__).read_bytes() + b'password = "c4n4ry-and-more"\n'
    source = page * ((16 << 20) // 10 // len(page))
    began = process_time()
    assert b"c4n4ry" not in redacted_source(source)
    assert process_time() - began < 1.0, "0.2 s on a quiet machine"


@pytest.mark.parametrize(
    "secret", ["PA\u017f\u017fWORD = 'c4n4ry'", "\u0130 api_\u212aey='c4n4ry'", "é?token=c4n4ry", "\U0001f600 ghp_" + TAIL]
)
def test_letters_that_are_not_ascii_keep_every_place(secret: str) -> None:
    assert "c4n4ry" not in redacted_source(secret.encode()).decode()
