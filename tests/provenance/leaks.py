"""A hundred leaks as people make them. Every secret is made here from a seed and belongs to nobody: no line of this file has one."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import NamedTuple

_chance = random.Random(8785)
LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def made(size: int, of: str = LETTERS) -> str:
    """Some digits and letters, with one of each, as a service gives them out."""
    return "".join(_chance.choice(of) for _ in range(size - 2)) + ("a7" if of != string.digits else "07")


STARTS = (
    ("ghp_", 36), ("gho_", 36), ("ghu_", 36), ("ghs_", 36), ("ghr_", 36), ("github_pat_", 82), ("glpat-", 20), ("gldt-", 20),
    ("glptt-", 40), ("xoxb-", 50), ("xoxp-", 60), ("xapp-1-", 50), ("sk_live_", 24), ("rk_live_", 24), ("whsec_", 32),
    ("sk-", 48), ("sk-proj-", 48), ("sk-ant-api03-", 93), ("hf_", 34), ("AIza", 35), ("npm_", 36), ("pypi-AgEIcHlwaS5vcmc", 60),
    ("shpat_", 32), ("sq0atp-", 22), ("ya29.", 60), ("GOCSPX-", 28), ("lin_api_", 40), ("ntn_", 46), ("PMAK-", 60),
    ("NRAK-", 27), ("glsa_", 41), ("sntrys_", 60), ("hvs.", 90), ("dp.pt.", 43), ("dckr_pat_", 27), ("r8_", 37), ("gsk_", 52),
    ("pplx-", 48), ("xai-", 80), ("figd_", 40), ("ATATT3x", 180), ("rubygems_", 48), ("nvapi-", 64), ("tgp_v1_", 43),
    ("fw_", 24), ("AGE-SECRET-KEY-1", 58), ("dapi", 32), ("dop_v1_", 64), ("SG.", 0), ("AKIA", 16),
)  # fmt: skip


class Leak(NamedTuple):
    """One leak.

    Attributes:
        text: a line, or several, of a source, or words of a command line.
        secret: the part of it that nobody may read.
    """

    text: str
    secret: str


def _tokens() -> Iterator[str]:
    """What services give out, which is known by its beginning."""
    for start, size in STARTS:
        if start == "SG.":
            yield f"SG.{made(22)}.{made(43)}"
        elif start in ("AKIA", "AGE-SECRET-KEY-1"):
            yield start + made(size, string.ascii_uppercase + "234567").upper()
        else:
            yield start + made(size, HEX if start in ("shpat_", "dapi", "dop_v1_") else LETTERS)


def in_sources() -> list[Leak]:
    """Leaks in Python, configuration and shell files: half of what services give out, and secrets behind names."""
    found = [Leak(f"client = Client({token!r})", token) for token in [*_tokens()][::2]]

    def leak(text: str, size: int = 24, of: str = LETTERS) -> None:
        secret = made(size, of)
        found.append(Leak(text.replace("SECRET", secret), secret))

    leak('parser.add_argument("--api-key", type=str, default="SECRET", help="of the tracker")')
    leak('key = os.environ.get("OPENAI_API_KEY", "SECRET")', 40)
    leak("password = os.getenv('DB_PASSWORD', 'SECRET')")
    leak('requests.get(url, auth=("ada", "SECRET"))')
    leak('session.auth = HTTPBasicAuth("ada", "SECRET")')
    leak('boto3.client("s3", aws_access_key_id="x", aws_secret_access_key="SECRET")', 40)
    leak('openai.api_key = "SECRET"', 40)
    leak('wandb.login(key="SECRET")', 40, HEX)
    leak('os.environ["WANDB_API_KEY"] = "SECRET"', 40, HEX)
    leak('headers = {"X-API-Key": "SECRET"}', 32)
    leak('headers = {"Authorization": "Bearer SECRET"}', 40)
    leak('headers["Authorization"] = f"Token SECRET"', 40)
    leak('conn = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=SECRET==;EndpointSuffix=core.windows.net"', 86)
    leak('bus = "Endpoint=sb://a.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=SECRET="', 43)
    leak('db = "Server=db;Database=a;User Id=ada;Password=SECRET;"', 16)
    leak('engine = create_engine("postgresql+psycopg2://ada:SECRET@db.example.org/a")', 16)
    leak('MongoClient("mongodb+srv://ada:SECRET@cluster0.example.net/?w=majority")', 16)
    leak('redis.from_url("redis://:SECRET@localhost:6379/0")', 20)
    leak('HOOK = "https://hooks.slack.com/services/T0123ABCD/B0123ABCD/SECRET"')
    leak('HOOK = "https://discord.com/api/webhooks/123456789012345678/SECRET"', 68)
    leak('bot = Bot("123456789:AASECRET")', 33)
    leak('"private_key": "-----BEGIN PRIVATE KEY-----\\nSECRET\\n-----END PRIVATE KEY-----\\n",', 64)
    leak('KEY = """-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----"""', 64)
    leak('KEY = """-----BEGIN OPENSSH PRIVATE KEY-----\nSECRET\n-----END OPENSSH PRIVATE KEY-----"""', 70)
    leak('KEY = """-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nSECRET\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----"""', 64)
    leak("machine api.example.org login ada password SECRET")
    leak("client_secret: SECRET", 32)
    leak("export HUGGINGFACE_TOKEN=SECRET", 34)
    leak("aws_secret_access_key = SECRET", 40)
    leak('{"username": "ada", "key": "SECRET"}', 32, HEX)
    return found


def in_arguments() -> list[Leak]:
    """Leaks on command lines: the other half of what services give out, and secrets behind options."""
    found = [Leak(f"--note {token}", token) for token in [*_tokens()][1::2]]

    def leak(text: str, size: int = 24, of: str = LETTERS) -> None:
        secret = made(size, of)
        found.append(Leak(text.replace("SECRET", secret), secret))

    leak("--wandb-key SECRET", 40, HEX)
    leak("--tracker.api_key=SECRET", 40)
    leak("logger.wandb.api_key=SECRET", 40)
    leak("--db-password SECRET")
    leak("--pass=SECRET")
    leak("--hf_token SECRET")
    leak("-u ada:SECRET")
    leak("--user ada:SECRET")
    leak("--proxy-user ada:SECRET")
    leak("--header X-Api-Key:SECRET", 32)
    leak("--header PRIVATE-TOKEN:SECRET", 20)
    leak("--header Authorization:Bearer\0SECRET", 40)
    leak("--url https://ada:SECRET@example.org/data")
    leak("--url https://example.org/data?api_key=SECRET&x=1", 32)
    leak("--url https://a.blob.core.windows.net/c/b?sv=2022&sig=SECRET%3D&se=1", 43)
    leak("--url https://s3.example.org/b?X-Amz-Credential=x&X-Amz-Signature=SECRET", 64, HEX)
    leak("--tracking-uri postgresql://ada:SECRET@db/mlflow")
    leak("--client-secret=SECRET", 32)
    leak("--encryption-key SECRET", 44)
    leak("--jwt eyJSECRET.eyJSECRET.SECRET", 30)
    return found


FURTHER = (
    ("ops_eyJ", 250, LETTERS), ("LTAI", 20, LETTERS), ("AKCp", 69, LETTERS), ("cmVmd", 59, LETTERS), ("p8e-", 32, LETTERS),
    ("ABSK", 109, LETTERS),
    ("bedrock-api-key-", 28, LETTERS), ("4b1d", 38, LETTERS), ("CLOJARS_", 60, HEX), ("doo_v1_", 64, HEX), ("dor_v1_", 64, HEX),
    ("duffel_test_", 43, LETTERS), ("dt0c01.", 24, LETTERS), ("EZAK", 54, LETTERS), ("EZTK", 54, LETTERS), ("FLWSECK_TEST-", 32, HEX),
    ("FLWPUBK_TEST-", 32, HEX), ("fm1a_", 100, LETTERS), ("fio-u-", 64, LETTERS), ("glcbt-1_", 20, LETTERS), ("glffct-", 20, LETTERS),
    ("glft-", 20, LETTERS), ("glimt-", 25, LETTERS), ("glagent-", 50, LETTERS), ("gloas-", 64, LETTERS), ("GR1348941", 20, LETTERS),
    ("eyJrIjoi", 70, LETTERS), ("HRKU-AA", 58, LETTERS), ("api_org_", 34, string.ascii_letters), ("ico-", 32, LETTERS),
    ("s-s4t2ud-", 64, HEX),
    ("ZXlK", 60, LETTERS), ("NRJS-", 19, HEX), ("NRII-", 32, LETTERS), ("API-", 26, string.ascii_uppercase), ("sha256~", 43, LETTERS),
    ("pscale_tkn_", 43, LETTERS), ("pscale_pw_", 43, LETTERS), ("pnu_", 36, LETTERS), ("rdme_", 70, LETTERS), ("tk-us-", 48, LETTERS),
    ("xkeysib-", 64, HEX), ("sm_aat_", 16, LETTERS), ("shippo_live_", 40, HEX), ("sk_prod_", 24, LETTERS), ("SK", 32, HEX),
    ("AQVN", 35, LETTERS), ("YC", 38, LETTERS), ("xoxe.xoxp-1-", 160, LETTERS), ("pk.", 60, LETTERS), ("s.", 24, LETTERS),
    ("ABIA", 16, string.ascii_uppercase),
)  # fmt: skip
SERVICES = ("adafruit", "airtable", "codecov", "dropbox", "heroku", "mapbox", "okta", "sonar", "twitch", "zendesk")


def of_further_services() -> list[Leak]:
    """Tokens of services that the hundred lack, and tokens under the name of a service, which have no beginning of their own."""
    tokens = [start + (made(size, of).upper() if of is string.ascii_uppercase else made(size, of)) for start, size, of in FURTHER]
    named = [(f'{name}_token = "{secret}"', secret) for name in SERVICES for secret in [made(32)]]
    return [*(Leak(f"client = Client({token!r})", token) for token in tokens), *(Leak(*one) for one in named)]
