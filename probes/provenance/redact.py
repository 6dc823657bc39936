"""Replace possible secrets by `***` before a text is recorded.

A pattern is tried only near the literals that each of its matches contains: `str.find` passes over a gigabyte in a second, a pattern of
alternatives over a few megabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge

REDACTED = "***"

# Whole names of options, keys and variables with secrets. `token` alone is one, `pad_token` is not.
_PREFIX = r"(?:[\w.-]*[-_.])?"
_KEY = r"secret|password|passwd|passphrase|pwd|credentials?|(?:api|access|secret|private|auth)[-_]?key"
_KIND = r"auth|access|api|bearer|secret|session|refresh|bot|hf|hub|huggingface|hugging[-_]face|github|gitlab|wandb|private|personal"
_SERVICE = r"wandb|comet|neptune|openai|anthropic|aws|azure|gcp|hf|huggingface|clearml|mlflow|slack|telegram|kaggle|encryption|signing|ssh"
_NAME = rf"{_PREFIX}(?:{_KEY}|pass|(?:{_KIND})[-_]?token|(?:{_SERVICE})[-_]?key)"
_OPTION = re.compile(rf"(?:--?|\+{{1,2}})?(?:{_NAME}|(?:[\w-]+\.)*token)", re.IGNORECASE)

# Tokens of services have known prefixes; a query or an address may contain a password.
_BEGINNINGS = (
    r"hf_|gh[pousr]_|github_pat_|gl(?:pat|dt|ptt|rt|soat)-|npm_|pypi-|dop_v1_|[sr]k_(?:live|test)_|whsec_|sk-|xox[abeoprs]-|xapp-|shp(?:at|ca|pa|ss)_"
    r"|sq0(?:atp|csp)-|ya29\.|GOCSPX-|lin_(?:api|oauth)_|ntn_|PMAK-|NRAK-|gl(?:sa|c)_|sntry[su]_|hv[sbr]\.|dp\.(?:pt|st|ct|sa)\.|dckr_(?:pat|oat)_|r8_|gsk_|pplx-"
    r"|xai-|figd_|AT(?:ATT3x|BB)|rubygems_|nvapi-|tgp_v1_|fw_|dapi(?=[0-9a-f]{32})|AGE-SECRET-KEY-1|key-(?=[0-9a-f]{32})|EAA(?=\w{40})|pul-(?=[0-9a-f]{40})"
    r"|ops_eyJ|LTAI(?=\w{20})|AKCp(?=\w{69})|cmVmd(?=\w{59})|p8e-(?=\w{3})|A3-(?=[A-Z0-9]{6}-)|ABSK(?=\w{60})"
    r"|bedrock-api-key-|4b1d(?=\w{38})|CLOJARS_|v1\.0-(?=[0-9a-f]{24}-)|do[or]_v1_|duffel_(?:test|live)_|dt0[cs]01\.|EZ[AT]K(?=\w{54})"
    r"|FLW(?:SEC|PUB)K(?:_TEST)?-|fm[12][ar]?_|fo1_|fio-u-|gl(?:cbt|ffct|ft|imt|agent|oas|wt)-|GR1348941|eyJrIjoi|HRKU-|api_org_"
    r"|[sp]at\.(?=[\w-]{22}\.)|ico-(?=\w{32})|s-s4t2(?:ud|af)-|ZXlK(?=\w{30})|NR(?:JS|II)-|API-(?=[A-Z0-9]{26})|sha256~"
    r"|pscale_(?:tkn|oauth|pw)_|pn[bu]_|rdme_|tk-us-|xkeysib-|sm_[aps]at_|shippo_(?:live|test)_|sgp_|EAAA(?=\w{20})|[sr]k_prod_"
    r"|SK(?=[0-9a-fA-F]{32})|AQVN(?=[\w-]{35})|YC(?=[\w-]{38})|xox\w{1,8}-|dnkey-|tfp_|access-(?:sandbox|development|production)-|pubkey-"
    r"|live_(?=[\w=-]{40})|sl\.(?=[\w=-]{100})|pk\.(?=\w{60})|t1\.(?=[\w-]+={0,2}\.[\w-]{80})"
    r"|\d{15,16}[|%](?=[\w-]{27})|[A-Za-z0-9]{14}\.atlasv1\."
)
_TOKENS = re.compile(
    rf"(?<![\w-])(?:(?:{_BEGINNINGS})(?=[\w.-]{{0,250}}\d)[\w-]{{16,}}"
    r"|(?:hf_|gh[pousr]_|github_pat_|glpat-|npm_|pypi-|dop_v1_|sk-|xox[abeoprs]-|xapp-)[\w-]{16,}|[sr]k_(?:live|test|prod)_\w{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[0-9A-Z]{16}|AIza[\w-]{30,}|SG\.[\w=.-]{33,}|pat\w{14}\.[0-9a-f]{64}|api_org_[A-Za-z]{30,}"
    r"|(?:sc|ext|scauth|authress)_[\w.-]{5,80}acc[_-][\w.+/=-]{20,}|FLWSECK_TEST-\w{12}|s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?![\w.])"
    r"|\w{6}_\w{29}_mmk|[\w~.-]{3}\dQ~[\w~.-]{31,34}|ey[A-Za-z0-9][\w-]{8,}\.ey[A-Za-z0-9][\w-]{8,}(?:\.[\w-]+)?|[0-9]{8,10}:AA[\w-]{32,})"
)
SHORTEST = 14  # no token is shorter, and few other words are that long
_LONG = re.compile(rf"[\w~.%|:=+/-]{{{SHORTEST},}}")
_PEM = r"-----END (?:[A-Z]+ )*PRIVATE KEY"
_VALUES = re.compile(
    r"(?i:(?<=Bearer )|(?<=Basic )|(?<=Token )|(?<=Digest ))(?=[\w.~+/=-]{0,200}[\d=])[\w.~+/=-]{8,}"
    r"|(?<=login\(key=[\"'])[^\"'\n]+|(?<=login\([\"'])[^\"'\n]{16,}"
    r"|(?<=://)(?:[^\s/@:]*:[^\s/@]+|[^\s/@:]{16,})(?=@)"
    r"|(?i:(?<=Authorization: ))(?:\w+ )?(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{8,}|(?<=_gitlab_session=)\w{16,}"
    r"|(?<=Password\" value=\")[^\"\n]+"
    r"|(?<=[?&]sig=)[^&\s\"']+|(?<=[?&]X-Amz-Signature=)[^&\s\"']+"
    r"|(?i:(?<=AccountKey=)|(?<=AccessKey=)|(?<=;Password=)|(?<=;Pwd=)|(?<=SharedSecret=))[^;\s\"']{6,}"
    r"|(?<=hooks\.slack\.com/)(?:services|workflows)/[\w/]+|(?<=/api/webhooks/)\d+/[\w-]{20,}"
    rf"|(?<=-----\n)(?:[ +-]?\n)?(?:[ +-]?[\w+/=]+\n)+(?=[ +-]?{_PEM})|(?<=-----\\n)[\w+/=\\]+(?={_PEM})"
)
_HEADER = re.compile(rf"(?<![\w.-])({_NAME})(\s?:\s*)[^\s\"',;{{}}()\[\]]{{6,}}", re.IGNORECASE)  # of HTTP, as one word of a command
_USER = re.compile(r"(?<![^\s=])([^\s:/@=]+:)[^\s/@]{6,}$")
_USER_OPTIONS = frozenset(["-u", "--user", "--auth", "--basic-auth", "--proxy-user", "--credentials"])
_QUERY = re.compile(rf"([?&](?:{_NAME}|token)=)[^&\s\"']+", re.IGNORECASE)

# In a source, a secret is a quoted text after its name, or the rest of the line after its name (`.env`, YAML, ini).
_BEHIND = r"[\"']?\]?(?:\s*:\s*\w+)?\s*(?:=>|[:=])\s*[rbfu]{0,2}"
_TEXT = r"(?P<quote>\"\"\"|'''|\"|')(?:(?!(?P=quote))(?:[^\\\n]|\\.))+(?P=quote)"
_QUOTED = re.compile(rf"(?<![\w.-])(?P<name>(?:{_NAME}){_BEHIND}){_TEXT}", re.IGNORECASE)
_TOKEN = re.compile(
    rf"(?<![\w.-])(?P<name>(?:[\w.-]*[-_.])?token{_BEHIND})(?P<quote>[\"'])(?=[^\"'\n]{{0,200}}\d)[\w.~+/=:|-]{{12,}}(?P=quote)",
    re.IGNORECASE,
)
_DEFAULT = re.compile(rf"(?P<name>[\"'](?:--?)?(?:{_NAME})[\"']\s*,(?:[^\n()]{{0,200}}?\bdefault\s*=)?\s*){_TEXT}", re.IGNORECASE)
_PAIR = re.compile(rf"(?P<name>\b\w{{0,40}}auth\w{{0,40}} ?=? ?\(\s*[\"'][^\"'\n]*[\"']\s*,\s*){_TEXT}", re.IGNORECASE)
_LOGIN = re.compile(r"(\blogin\s+\S+\s+password\s+)\S+")
_KAGGLE = re.compile(r"(?P<name>[\"']key[\"']\s*:\s*)(?P<quote>[\"'])[0-9a-f]{32,}(?P=quote)")
_BARE = re.compile(
    rf"^(?P<name>[-+ ]?\s*(?:export\s+)?(?:(?:{_NAME})\s*[:=]\s*|token=))[^\s#\"'()\[\]{{}},]{{6,}}(?=\s*(?:\#.*)?$)",
    re.IGNORECASE | re.MULTILINE,
)

_Places = Callable[["_Haystack"], Iterator[int]]
_IN, _OUT = ord("a"), ord(" ")


class _Haystack:
    """A text with fast search for literals.

    Attributes:
        text: what is searched.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._found: dict[tuple[str, ...], list[int]] = {}

    @cached_property
    def lower(self) -> str:
        """The text in lower case, character by character, as case-insensitive patterns compare it."""
        lowered = self.text.lower()
        if len(lowered) != len(self.text):  # one capital has a lower case of two characters
            lowered = "".join(small if len(small := c.lower()) == 1 else c for c in self.text)
        return lowered if lowered.isascii() else lowered.replace("\u017f", "s")

    def at(self, literals: tuple[str, ...]) -> list[int]:
        """The positions of any of some lower-case literals, ascending."""
        if literals not in self._found:
            self._found[literals] = list(merge(*(_all(self.lower, one) for one in literals)))
        return self._found[literals]

    def replaced(self, pattern: re.Pattern[str], replacement: str, places: Iterable[int]) -> _Haystack:
        """The result of `pattern.sub`.

        Args:
            pattern: what is replaced.
            replacement: as `re.Match.expand` takes it.
            places: where every match begins, and perhaps more; ascending.
        """
        out: list[str] = []
        done, tried = 0, -1
        for place in places:
            start = max(place, done)
            if start == tried:
                continue
            tried = start
            found = pattern.match(self.text, start)
            if found is not None:
                out += [self.text[done:start], found.expand(replacement)]
                done, tried = found.end(), -1
        return _Haystack("".join([*out, self.text[done:]])) if out else self


def _all(text: str, literal: str) -> Iterator[int]:
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + 1)


def _names(keywords: tuple[str, ...], tail: re.Pattern[str], before: int = 0) -> _Places:
    """The beginnings of names with a keyword, if the text after the keyword matches the tail.

    Args:
        keywords: in lower case.
        tail: matches from the keyword on, in lower case.
        before: how many characters before the name belong to it.
    """

    def places(hay: _Haystack) -> Iterator[int]:
        known, first = -1, 0  # the last position that was checked, and the beginning of its name
        for at in hay.at(keywords):
            if tail.match(hay.lower, at):
                first = _beginning(hay.text, at, known, first)
                known = at
                if first >= before:
                    yield first - before

    return places


def _beginning(text: str, at: int, known: int, first: int) -> int:
    """The beginning of the letters, digits, `_`, `.` and `-` before a position; each name is scanned once, for all its keywords."""
    while at > 0 and ((c := text[at - 1]).isalnum() or c in "_.-"):
        at -= 1
        if at == known:
            return first
    return at


def _behind(literals: tuple[str, ...], tail: re.Pattern[str]) -> _Places:
    """The end of a tail that begins with a literal, both in lower case."""

    def places(hay: _Haystack) -> Iterator[int]:
        for at in hay.at(literals):
            found = tail.match(hay.lower, at)
            if found is not None:
                yield found.end()

    return places


def _lines(keywords: tuple[str, ...], tail: re.Pattern[str]) -> _Places:
    """The beginnings of lines with a keyword, if the text after the keyword matches the tail, in lower case."""

    def places(hay: _Haystack) -> Iterator[int]:
        first = 0
        for at in hay.at(keywords):
            if tail.match(hay.lower, at):
                first = hay.text.rfind("\n", first, at) + 1 or first
                yield first

    return places


def _long_words(text: str, characters: str, least: int) -> Iterator[tuple[int, int]]:
    """Beginning and end of each run of so many characters of a set; all that are not ASCII count as of the set.

    Args:
        text: what is searched.
        characters: ASCII characters in addition to letters and digits.
        least: the fewest characters of a run.
    """
    table = bytes(_IN if chr(code) in characters or chr(code).isalnum() or code > 127 else _OUT for code in range(256))
    shape = text.encode("latin-1", "replace") if text.isascii() else text.replace("?", " ").encode("ascii", "replace").replace(b"?", b"0")
    shape = shape.translate(table)
    run = bytes([_IN]) * least
    start = shape.find(run)
    while start >= 0:
        end = shape.find(_OUT, start)
        end = len(shape) if end < 0 else end
        yield start, end
        start = shape.find(run, end)


# Where the patterns are tried: the text before each match of `_VALUES`, and after the keyword of each match of the others.
_KEYWORDS = ("secret", "pass", "pwd", "credential", "key", "token")
_BEFORE_VALUES = _behind(_KEYWORDS, re.compile(r"token |key=|pass(?:word)?(?:=|\" value=\")|pwd=|secret="))
_BEFORE_OTHERS = _behind(
    (
        "bearer ", "basic ", "digest ", "login(", "://", "authorization: ", "_gitlab_session=", "sig=", "signature=", "hooks.slack.com/",
        "/api/webhooks/", "-----\n", "-----\\n",
    ),
    re.compile(
        r"bearer |basic |digest |login\((?:key=)?[\"']|://|authorization: |_gitlab_session=|sig=|signature=|hooks\.slack\.com/"
        r"|/api/webhooks/|-----(?:\n|\\n)"
    ),
)  # fmt: skip
_WORD = r"(?:secret|pass(?:word|wd|phrase)?|pwd|credentials?|key|token)"
_IN_QUERY = _names(_KEYWORDS, re.compile(f"{_WORD}="), before=1)
_IN_LINES = _lines(_KEYWORDS, re.compile(rf"{_WORD}\s*[:=]\s*[^\s#\"'()\[\]{{}},]"))
_NAMED = _names(_KEYWORDS, re.compile(rf"{_WORD}{_BEHIND}[\"']"))
_QUOTES = (
    (_QUOTED, _NAMED),
    (_TOKEN, _NAMED),
    (_DEFAULT, _names(_KEYWORDS, re.compile(rf"{_WORD}[\"']\s*,"), before=1)),
    (_PAIR, _names(("auth",), re.compile(r"auth\w{0,40} ?=? ?\(\s*[\"']"))),
    (_KAGGLE, _names(('"key', "'key"), re.compile(r"[\"']key[\"']\s*:"))),
)


def redacted(argv: Sequence[str]) -> tuple[str, ...]:
    """Arguments without the values of options like `--api-key` or `api_key=`, and without known kinds of tokens."""
    out: list[str] = []
    hide = user = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        secret = _OPTION.fullmatch(name) is not None
        if hide and not argument.startswith("-"):
            out.append(REDACTED)
        elif secret and equals:
            out.append(f"{name}={REDACTED}")
        else:
            shown = _HEADER.sub(rf"\g<1>\g<2>{REDACTED}", redacted_value(argument))
            out.append(_USER.sub(rf"\g<1>{REDACTED}", shown) if user or name in _USER_OPTIONS else shown)
        hide = secret and not equals and argument.startswith("-")
        user = argument in _USER_OPTIONS
    return tuple(out)


def redacted_value(text: str) -> str:
    """A text without known kinds of tokens, and without passwords in addresses."""
    return _without_values(text).text


def _without_values(text: str) -> _Haystack:
    hay = _Haystack(_without_tokens(text))
    hay = hay.replaced(_VALUES, REDACTED, merge(_BEFORE_VALUES(hay), _BEFORE_OTHERS(hay)))
    return hay.replaced(_QUERY, rf"\g<1>{REDACTED}", _IN_QUERY(hay))


def _without_tokens(text: str) -> str:
    out: list[str] = []
    done = 0
    for start, end in _long_words(text, "_~.%|:=+/-", SHORTEST):
        word = text[start:end]
        masked = _TOKENS.sub(REDACTED, word) if word.isascii() else _LONG.sub(lambda found: _TOKENS.sub(REDACTED, found[0]), word)
        if masked != word:
            out += [text[done:start], masked]
            done = end
    return "".join([*out, text[done:]]) if out else text


def redacted_table(table: Mapping[str, str]) -> dict[str, str]:
    """Named texts without those whose name suggests a secret."""
    return {name: REDACTED if _OPTION.fullmatch(name) else redacted_value(value) for name, value in table.items()}


def redacted_source(source: bytes) -> bytes:
    """A source, or a difference of sources, without quoted texts after secret names, and without known kinds of tokens.

    Bytes that are not UTF-8 do not change.
    """
    hay = _without_values(source.decode("utf-8", "surrogateescape"))
    for pattern, places in _QUOTES:
        hay = hay.replaced(pattern, rf"\g<name>\g<quote>{REDACTED}\g<quote>", places(hay))
    hay = hay.replaced(_LOGIN, rf"\g<1>{REDACTED}", hay.at(("login",)))
    hay = hay.replaced(_BARE, rf"\g<name>{REDACTED}", _IN_LINES(hay))
    return hay.text.encode("utf-8", "surrogateescape")
