"""Redaction of secrets, before text is stored or sent to a model.

A secret is recognised by the format that its issuer uses, by the words before it (a
header, a name such as `password`), or because it is a random string in quotes. A mark
replaces the secret and says what kind it was. Every pattern takes time linear in the
length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache
from itertools import groupby
from math import log2
from typing import Any

# docs/secrets.md lists what is found, and how often ordinary texts are marked. Public
# addresses are left alone: 11 % of 16,000 log lines have one. Hexadecimal in quotes
# counts only after a key or token: all others were digests, ids and alphabets. Base64
# in quotes counts only with letters of both cases, digits and no sequence: that left 14
# of 88 texts, all tokens.

# Tokens in the form that their issuers give them: a kind and its patterns. A pattern
# begins with a fixed letter and continues with one class of characters, so a text is
# read in time linear in its length. "<" means that no letter or digit precedes the
# pattern.
_CHARACTER_CLASSES = {
    "a": "[A-Za-z0-9]",
    "h": "[0-9a-f]",
    "i": r"[\w-]",
    "l": "[a-z0-9]",
    "u": "[A-Z0-9]",
}
_CHARACTER_CLASSES["C"] = r"(?=[\w/%.-]{0,60}\d[\w/%.-]{0,60}[A-Z\d])[\w/%.-]{20,}"
_CHARACTER_CLASSES["P"] = (
    r"(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})[\w./$=,:+-]++"  # the hash of a password
)
_ISSUER_TOKENS = r"""
aws_key A(?:KIA|SIA|BIA|CCA|3T\u)\u{16} ABSK[\w+/]{80,}+={0,2} amzn\.mws\.[0-9a-f-]{36}
 da2-\l{26}(?!\w)
google_key AIza\i{35} GOCSPX-\i{28} ya29\.\i{20,} 1//0\i{28,} 4/0A\i{30,}
cloud_key do[opr]_v1_\h{64} dapi\h{32} LTAI\a{20} SCW<\u{17}(?!\w)
 dp\.(?:pt|st|ct|sa|scim|audit)\.(?:\i{2,35}\.)?\a{40,44} hv[sbr]\.\i{20,}
 pscale_[a-z]{2,5}_[\w.=-]{32,} sbp_\h{40} sb_secret_\i{20,} pul-\h{40}
 api\.softlayer\.com/soap/v3(?:\.1)?/\a{64} v1\.0-\h{24}-\h{100,} fm[12][ar]?_[\w+/]{40,}+={0,2}
 fo1_\i{40,} tskey-[a-z]{3,9}-\i{20,} nfp_\w{36,} napi_\l{40,} rnd_\a{28,} HRKU-\i{36,}
 sha256~\i{43}
github_token gh[oprsu]_\w{36,} github_pat_\w{22,}
gitlab_token gl(?:pat|dt|ft|soat|rt|rtr|cbt|imt|ptt|agent|oas|ffct|wt)-[\w.-]{20,} GR1348941\i{20,}
tool_token ATBB\a{28,} ATCTT3[\w=-]{60,} ATTA\h{64} CCIPAT_\w{40,} bk(?:aj|at|ct|ua)_\l{32,}
 sq[apu]_\h{40} lin_(?:api|oauth)_\a{32,} ntn_\a{40,} secret_\a{43}(?!\w) ATATT3[\w=-]{60,}
 PMAK-\h{24}-\h{34} NR(?:AK|II|JS|RA)-\i{19,} glsa_\a{32}_[a-fA-F0-9]{8} glc_eyJ[\w+/-]{30,}+={0,2}
 sntry[su]_[\w+/=-]{40,} fig[do]_\i{40} pat\a{14}\.\h{64} pat-[a-z]{2}\d-[0-9a-f-]{36}
 pk_\d{5,}+_\u{32} CFPAT-\i{43} sl\.(?:u\.)?\i{130,} 1/\d{10,}+:\h{32} 2/\d{10,20}/\d{10,20}:\h{32}
 ops_eyJ[\w+/-]{80,}+={0,2} ph[cx]_\a{40,} pylf_v\d_[a-z]{2}_\w{40,} s(?:dk|api)-\h{8}-[0-9a-f-]{27}
 00<(?=\i{0,39}[a-z])(?=\i{0,39}[A-Z])\i{40}(?!\i)
package_token npm_\w{36} pypi-AgE\i{50,} rubygems_\h{48} dckr_[op]at_\i{27,} AKC<\a{10,}+(?![\w+/-])
 AP<[0-9A-F]\a{8,}+(?![\w+/-]) cmVmd<\a{59} cio<\a{32}(?!\w) oy2<\l{43}(?!\w)
slack_token xox[a-z](?:\.xox[a-z])?-[\w%-]{6,} xapp-\d-\i{10,}
webhook hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{10,}
 discord(?:app)?\.com/api/webhooks/\d{10,}+/\i{40,} webhook\.office\.com/webhookb2/[\w@/-]{36,}
 maker\.ifttt\.com/trigger/[\w/-]{24,}
chat_token M<\i{23,25}\.\i{6}\.\i{27,} N<\i{23,25}\.\i{6}\.\i{27,} O<\i{23,25}\.\i{6}\.\i{27,}
 oauth:\l{30}(?!\w)
stripe_key sk_(?:live|test)_\a{16,} rk_(?:live|test)_\a{16,} whsec_[A-Za-z0-9+/=]{24,}
heedful_key heedful_\h{12}_\h{64}
payment_key sq0[a-z]{3}-[\w\\-]{22,} EAAA\i{60,} EAA<[BCGIMNO]\a{60,}
 shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32} rzp_(?:live|test)_\a{14,}
 access-(?:sandbox|development|production)-[0-9a-f-]{36}
 access_token\$(?:production|sandbox)\$\l{16}\$\h{32}
phone_key AC\l{32} SK\l{32}
mail_key SG\.\i{16,}+\.\i{16,} key-\h{32} x(?:key|smtp)sib-\h{64}\i* re_<\a{8}_(?=\w{0,40}\d)\a{20,}
model_key sk-<(?:(?=[A-Za-z_-]{0,60}\d)\i{20,}|\a{20,}) gsk_\a{40,} xai-\a{60,} pplx-\a{40,}
 r8_\a{36,} nvapi-\i{60,} lsv2_[a-z]{2}_\w{32,} pcsk_\w{40,} tvly-\i{24,} csk-<\l{40,}
 sk_<\h{48}(?!\w) fw_<\a{22,} fc-<\h{32}(?!\w) e2b_\h{40} jina_\w{50,} tgp_v1_\i{40,}
 wandb_v1_\w{40,} pa-<(?=\i{0,40}\d)\i{43}(?!\i)
hub_token hf_\a{30,} api_org_\a{30,}
private_key AGE-SECRET-KEY-1\u{58} b3BlbnNzaC1rZXktdjE[\w+/=]{40,} xprv\a{100,} K<\a{51}(?!\w)
 L<\a{51}(?!\w) 5<[HJK]\a{49}(?!\w)
 LS0tLS1CRUdJTiB(?:SU0EgU|QUklWQ|FQyBQUk|EU0EgU|PUEVOU1NI|FTkNSW|QR1AgUFJJ)[\w+/=]{40,}
password_hash md5<\h{32}(?!\w) {(?i:S?SHA\d{0,3})\}[\w+/]{16,}+={0,2}
 aad3b435b51404eeaad3b435b51404ee:\h{32}
 $(?:[1-9yPHS]|2[abxy]|14|gy|s2|apr1|argon2[id]{1,2}|pbkdf2\i{0,9}|scrypt|md5)\$\P
 $\d{1,8}\$[\w./+=]{1,64}\$\P $\d{4,8}:\P $[\w./+]{6,64}\$\h{64,}
jwt eyJ<\i{5,}+={0,2}\.[\w=-]{2,}+(?:\.[\w.+/=-]*+)?
signature sig=[\w%+/-]{40,}+={0,2} X-(?:Amz|Goog)-Signature=\h{64,} Signature=[\w~%+/-]{40,}+={0,2}
 ?code=\C &code=\C
"""
# Every token has such a part; few ordinary words have one, and only these are searched.
_TOKEN_PART_PATTERN = (
    r"(?:(?=[a-z_.=~-]{0,40}+[A-Z\d])|(?=[a-z]{2,9}[_-][\w-]{20}))[\w.=~+-]{16,}+"
)

# Code and prose also assign to names of secrets. So without quotes a secret needs a
# digit or a sign, or it follows "=" directly, as in settings and addresses, and is no
# name of a secret.
_UNQUOTED_CHARACTER = r"[^\s\"'`,;&()\[\]{}<>]"
_UNQUOTED_SECRET_REGEX = (
    r"(?=[!@#~]?+[^\s\"'`,;&()\[\]{}<>!@#$~\d]{0,40}+[!@#$~\d])"
    rf"(?!\d{{1,7}}(?!{_UNQUOTED_CHARACTER})){_UNQUOTED_CHARACTER}{{6,}}+(?![(\[{{])"
)
# references, templates, names of variables and parts of expressions are not secrets
_NO_SECRET_REGEX = (
    r"(?!\$[A-Za-z_{(]|[<{%*),;.|&\]}\[]|\+(?!\S{16})"
    r"|[A-Z]++(?>(?:_[A-Z]++)+)(?![^\s\"',;)\]}]))"
)

# Secrets recognised by the text before them: a word that the whole text must contain,
# the kind, and a pattern with a group for the text before the secret. A match without
# this group stays.
_PRIVATE_KEY_PATTERN = (
    r"()(?:-{4,5} ?BEGIN [A-Z0-9 ]{0,30}(?:PRIVATE KEY(?: BLOCK)?|[\w ]{0,30}key V1) ?-{4,5}"
    r"(?>(?:[^-]++|-(?!---))*)(?:-{4,5} ?END [\w ]{1,40}-{4,5})?"
    r"|PuTTY-User-Key-File-\d(?s:.)*?(?:Private-MAC: ?\w+|\Z))"
)
# A password ends at the last "@" before the path. It may contain "/", but not after a
# port.
_URL_PASSWORD_PATTERN = (
    r"(://)(?:(?=[\w-]{20,200}+@)(?=[\w-]{0,60}\d)|[^\s/:'\"\[]*+:(?!\$?[{<]|%[sd(]|\d{1,5}[/?#])"
    r"(?=[^\s@'\"]))[^\s/@'\"]*+[^\s@'\"]{0,60}+(?>(?:@[^\s/@'\",]*+(?=@))*)(?=@)"
)
# after any scheme but a bearer's; `auth` is in the settings of Docker and npm
_AUTHORIZATION_PATTERN = (
    r"((?:uthorization|UTHORIZATION|_auth|\"auth)(?:\\{0,3}[\"'])?\s{0,20}[:=]\s{0,20}(?:\\{0,3}[\"'])?"
    r"(?!(?i:bearer)\s[\w.~+/=-]{20})(?>(?:[A-Za-z][\w-]{1,30}\s{1,3})?))"
    rf"{_NO_SECRET_REGEX}(?![\w.]{{1,60}}[(}}])(?:(?<=(?i:basic)\s)|(?=[^\s\"']{{0,60}}\d))[^\s\"'\\]{{8,}}+"
)
_COOKIE_PATTERN = (
    r"((?i:ookie)(?:\\{0,3}[\"'])?\s{0,20}:\s{0,20}(?:\\{0,3}[\"'])?)"
    r"[\w.%+-]{1,64}=[^\s;\"']*+(?>(?:;\s{0,20}[\w.%+-]{1,64}=[^\s;\"']*+)*)"
)
_COMPARISON_PATTERN = (
    r"([\"'])[^\s\"']{6,}+(?=[\"']\s{0,20}[!=]={1,2}\s{0,20}[\w.]{0,30}?"
    r"(?i:passw|passphrase|pwd|secret|contrase|(?:OWNERS)_?(?:key|token|pass)))"
)
_SECRET_OPTION_PATTERN = (
    r"(-(?=[a-zA-Z])(?<!\w-)(?:[a-zA-Z]{2,20}+-){0,3}(?>(?i:(?:store|key|require)?pass(?:word|wd|phrase|code)?|pwd?"
    r"|secret|token|(?:api|access|auth|account|client|master)[_-]?key))"
    rf"(?:\s{{1,3}}+[\"']?|[\"'],\s{{0,20}}[\"']))(?!-|id=|type=){_NO_SECRET_REGEX}"
    rf"(?:(?<=\s[\"'])[^\"'\n]{{4,}}+(?=[\"'])|{_UNQUOTED_SECRET_REGEX}|(?!requires)[a-z]{{8,40}}+(?=\s{{1,3}}-))"
)
_SETTER_CALL_PATTERN = (
    r"([sSdD](?i:(?:(?<=s)et_?|(?<=d)efine\W{1,3})\w{0,30}?(?:passw\w|secret|token|api_?key)"
    r"\w{0,9}+|(?<=s)ecret-?str(?:ing)?\b)(?:(?<=[A-Z])[\"'],\s?|\(|\s{1,9})\\{0,3}[\"'])"
    rf"{_NO_SECRET_REGEX}[^\s\"'\\]{{6,}}+(?=\\{{0,3}}[\"'])"
)
_ECHO_PIPE_PATTERN = (
    r"(echo\s{1,3}(?:-\w\s{1,3})?[\"']?)(?!\$)[^\s\"'|]{4,80}(?=[\"']?\s{0,3}\|\s{0,3}(?:sudo\s-S"
    r"|(?:sudo\s)?chpasswd|[^|\n]{0,80}?-stdin))"
)
_SQL_PASSWORD_PATTERN = (
    r"([pPiI](?i:(?<=p)assword(?:\s{1,9}|\()'|(?<=i)dentified\s{1,9}(?:with\s{1,9}\S{1,40}\s{1,9})?"
    r"by\s{1,9}(?:password\s{1,9})?(?:['\"]|(?=[\w$#]{1,40};))))"
    rf"{_NO_SECRET_REGEX}(?:(?<=')[^'\n]{{6,64}}+(?=';)|[^\s\"';)]{{4,}}+(?!['\"],))"
)
# Four or more plain words, in quotes or up to the end of the line, that are no
# sentence.
_PASSPHRASE_PATTERN = (
    r"([pPmM](?i:(?<=m)nemonic|(?<=p)hrase(?:(?<=(?:pass|seed)phrase)|(?<=(?:pass|seed|very).phrase))"
    r"|(?<=p)assword)(?:\\{0,3}[\"'])?\s{0,9}[:=]\s{0,9}\\{0,3}[\"']?)"
    r"(?=[a-zA-Z]{3,12}(?>(?:[ -][a-zA-Z]{3,12}){3,24})(?:\\{0,3}[\"']|\s{0,9}(?:\n|\Z)))"
    r"(?!(?:\w{1,12}[ -]){0,24}(?i:must|not|the|and|for|has|have|with|should|required|least|cannot"
    r"|please|your|this|are|was|will|can|too|new|from|enter|see|user|use|is|to|of|in|or|by|on|if|it"
    r"|as|no|be|only|same|string|none|invalid|incorrect|wrong|failed)\b)[a-zA-Z -]++"
)
_USER_OPTION_REGEX = (
    r"-(?:[auU]|-auth|-[a-z-]{0,6}user)(?:BLANK|=)?QUOTE[^\s\"']{1,64}?[:%]"
)
# Programs, and their option for a password. The arguments before the option are
# skipped; without the option they are the match, so that no argument is read twice.
_PASSWORD_COMMANDS_REGEX = "|".join(
    rf"(?:{programs})(?=BLANK)(?>(?:GAP(?!{option})WORD)*)(?:(GAP{option}QUOTE){_NO_SECRET_REGEX}SECRET)?"
    for programs, option in (
        (r"mysql\w{0,12}+|mariadb[\w-]{0,12}+|7z[ar]?", r"-p(?=\S)"),
        (r"login|sshpass|twine|mongo\w{0,8}+|cqlsh", "-p(?:BLANK)?"),
        ("sqlcmd|zip", "-P(?:BLANK)?"),
        ("curl|https?|smbclient", _USER_OPTION_REGEX),
        (r"redis-cli|ldap[a-z]{3,9}", "-[awy]BLANK"),
        ("openssl", r"-pass\w{0,3}BLANKpass:"),
    )
)


def _commands(blank: str, gap: str, word: str, quote: str, secret: str) -> str:
    parts = {"BLANK": blank, "GAP": gap, "WORD": word, "QUOTE": quote, "SECRET": secret}
    return re.sub(
        "|".join(parts), lambda name: parts[name[0]], _PASSWORD_COMMANDS_REGEX
    )


# The words of a command in a shell, in quotes in a list (between names), and joined by
# "\x1f".
_SHELL_WORD_REGEX = r"(?:\"[^\"\n]{0,400}+\"|'[^'\n]{0,400}+'|(?>[^\s;|&\"']+))+"
_SHELL_SECRET_REGEX = r"(?:(?<=[\"'])[^\"'\n]{4,}+(?=[\"'])|[^\s\"'`;|&()<>]{4,}+)"
_SHELL_COMMAND_PATTERN = _commands(
    r"\s",
    gap=r"\s{1,9}+",
    word=_SHELL_WORD_REGEX,
    quote=r"[\"']?",
    secret=_SHELL_SECRET_REGEX,
)
_LIST_QUOTE_REGEX = r"\\{0,3}[\"']"
_LIST_COMMA_REGEX = r"\s{0,20},\s{0,20}"
_LIST_NAMES_REGEX = (
    rf"{_LIST_COMMA_REGEX}(?>(?:[\w.]{{1,64}}{_LIST_COMMA_REGEX}){{0,8}})"
)
_LIST_TEXT_REGEX = (
    rf"(?:[^\"'\\\n]++|{_LIST_QUOTE_REGEX}(?!\s{{0,20}}[\],)])|\\(?!\\{{0,2}}[\"']))"
)
_QUOTED_SECRET_REGEX = (
    rf"(?:(?<![\"'])|(?!-))(?=[^\s\"'](?:[^\"'\n]|'\w){{3}})(?>{_LIST_TEXT_REGEX}+)"
)
_LIST_NEXT_REGEX = f"{_LIST_QUOTE_REGEX}{_LIST_COMMA_REGEX}{_LIST_QUOTE_REGEX}"
_LIST_COMMAND_PATTERN = _commands(
    _LIST_NEXT_REGEX,
    gap=f"{_LIST_QUOTE_REGEX}{_LIST_NAMES_REGEX}{_LIST_QUOTE_REGEX}",
    word=f"(?>{_LIST_TEXT_REGEX}*)",
    quote="",
    secret=_QUOTED_SECRET_REGEX,
)
_JOINED_SECRET_REGEX = r"(?:(?<!\x1f)|(?!-))(?=[^\s\x1f]{4})[^\x1f]++"
_JOINED_COMMAND_PATTERN = _commands(
    r"\x1f", gap=r"\x1f", word=r"[^\x1f]*+", quote="", secret=_JOINED_SECRET_REGEX
)
_PREFIX_RULES = (
    ("private", "private_key", _PRIVATE_KEY_PATTERN),
    ("static key", "private_key", _PRIVATE_KEY_PATTERN),
    ("://", "password_in_url", _URL_PASSWORD_PATTERN),
    ("auth", "authorization", _AUTHORIZATION_PATTERN),
    ("cookie", "cookie", _COOKIE_PATTERN),
    ("identified", "password", _SQL_PASSWORD_PATTERN),
    ("echo ", "password", _ECHO_PIPE_PATTERN),
    ("mnemonic", "password", _PASSPHRASE_PATTERN),
    ("phrase", "password", _PASSPHRASE_PATTERN),
)
_MIN_TOKEN_CHARS = 16
_LONG_WORD_RULES = (  # parts of a word of at least `_MIN_TOKEN_CHARS` characters
    ("bearer", "bearer", r"([eE](?i:arer) {1,3})[\w.~+/=-]{20,}"),
    (":", "chat_token", r"(:(?<=\d{8}:))[\w-]{35}(?![\w-])"),
    (":5432:", "password", r"(:5432:[\w*-]{1,64}+:[\w*-]{1,64}+:)\S++(?=\n|\Z)"),
    ("-us", "mail_key", r"()(?<![0-9a-z])[0-9a-z]{32,}+-us\d{1,2}"),
    ("q~", "cloud_key", r"()[\w.~]{3}\dQ~[\w.~-]{31,34}"),
    (".atlasv1.", "cloud_key", r"()[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}"),
)

# Names that a secret is assigned to. "key", "token" and "pass" count only after the
# name of an owner, or if the value can only be a secret.
_SECRET_OWNERS = (
    "api app bot key auth priv access client master account encryption private "
    "refresh env "
)
_SECRET_OWNERS += (
    "service session signing database db preshared subscription smtp admin root user "
)
_SECRET_OWNERS += "require export"
_NAME_CLOSE_REGEX = r"(?>(?:\\{0,3}[\"'*`]|(?<=[\"'])\]){0,2})"
_SECRET_NAME_PATTERN = (  # the first letter, then the second, and the rest of either
    r"[pPsScCkKtT](?:[aA](?<=[pP].)(?i:ssw(?:or[dt]|d)|ssphrase|ssOWNED4)"
    r"|[wW](?<=[pP].)[dD](?![^\w\s]{1,4}\s{0,20}[/~.])"  # not the working directory
    r"|[eE](?i:(?<=s.)cret(?!ar)|(?<=k.)yOWNED3)"
    r"|[oO](?i:(?<=t.)ken(?:OWNED5|(?<![\w-].{5})(?=[\s\\\"'*`\]]{0,9}[:=][\s\\\"'`]{0,9}"
    # mixed
    r"(?=[\w.+/~=-]{12})\d{0,20}+(?:[_-]?[A-Za-z][A-Za-z_-]{0,30}\d{1,20}+){2}))"
    r"|(?<=c.)ntrase[nñÑ]a)|[rR](?<=[cC].)(?i:edential))"
    rf"[\w-]{{0,24}}+{_NAME_CLOSE_REGEX}(?:\s(?:\[[\w*]{{1,24}}\]|\d)(?=:))?(?=[\s:=!>,<])"
    # its type
    r"(?>(?<!-)>|\s{0,20}+(?::\s{0,20}+[\w.\[\] |]{1,40}+=\s{0,20}+(?=\\{0,3}[\"'])"
    r"|(?:[:=!]{1,3}>?|(?<=\s)is:?\s(?=[\"'`]?[^\s\"'`]{0,40}[\d!@#$]))\s{0,20}+"
    r"(?:(?:\*\*|</\w{1,9}>|[|>][+-]?\s)\s{0,20}+)?`?"  # in Markdown, HTML and YAML
    # beside its name, as in {"name": …, "value": …}, also in XML
    r"|(?=[,<\\\"'vVsS]),?\s{0,20}+(?:</\w{1,20}>\s{0,20}+<|\\{0,3}[\"']?)(?i:value|string)"
    r"\\{0,3}[\"']?\s{0,20}+[:=>]\s{0,20}+|(?<=\s)(?=\\{0,3}[\"'][^\"'\n]{2,}+[\"'];)"
    # at the end of a line, as in settings and commands
    r"|(?<=[ \t])(?:\d )?(?!-|\w{1,64}=\w)(?=[^\s\"']{6,}+\s{0,9}(?:\n|\Z))))"
    r"(?>(?:\[?\{\s{0,20}+\\{0,3}[\"'](?i:(?:string_?|array)?values?)\\{0,3}[\"']\s*+:\s*+){0,4})"
)
_QUOTED_VALUE_REGEX = (
    rf"[bBrRuUN@]?\\{{0,3}}[\"']{_NO_SECRET_REGEX}()(?:(?=[^\s\"']{{6}})"
    r"[^\s\"'\\]*+(?>(?:\\(?!\\{0,2}[\"'])[^\s\"'\\]*+)*)"
    r"(?=\\{0,3}[\"']|[^\"'\n]*+(?:\n|\Z))|(?:(?<==[\"'])|(?<==\s[\"']))[^\"'\n]{8,}+(?=[\"']))"
)
_BARE_VALUE_REGEX = (
    rf"{_NO_SECRET_REGEX}()(?:{_UNQUOTED_SECRET_REGEX}"
    r"|(?:(?<=\w=)|(?<=\w>)(?=[\w-]{1,64}</))(?=[A-Za-z_-]{8,64}+(?![^\s&;\"'<>`\\]))"
    r"(?![A-Za-z_-]{0,60}(?i:secret|key|token|pass|pwd|cred))[A-Za-z_-]++|[a-z]{20,64}+(?![\w.([]))"
    rf"|{_UNQUOTED_CHARACTER}{{64,}}+"
)
# The pattern also consumes a name with a long value that is not a secret; otherwise a
# value that repeats itself would be tried again from each of its positions.
_ASSIGNED_SECRET_PATTERN = (
    rf"{_SECRET_NAME_PATTERN}(?:{_QUOTED_VALUE_REGEX}|{_BARE_VALUE_REGEX})?"
)
_KEYED_SECRET_PATTERN = (
    r"([kKtTpP](?:[eE](?<=[kK].)[yY]|[oO](?<=[tT].)(?i:ken)|[aA](?<=[pP].)(?i:ss(?:word)?)"
    rf"|[wW](?<=[pP].)[dD]?)(?=[\\\"'\]\s:=!]){_NAME_CLOSE_REGEX}"
    r"(?:(?:\s\d)?\s{0,20}+[:=!]{1,3}+>?\s{0,20}+|[ \t]{1,20}+)(?:\\{0,3}[\"'`])?)"
    r"(?=[\w+/~-]{20})(?=[\w+/~-]{0,60}\d)(?:[\w-]{44}(?![\w-])|[0-9A-Za-z]{64}|[0-9a-fA-F]{32,}"
    r"|(?=[\w+/~-]{0,60}[a-z])(?=[\w+/~-]{0,60}[A-Z])[\w+/~-]{20,}+={0,2})(?>(?:[\w+/~%=-]|\.\w)*)"
)
_NETRC_PATTERN = (
    r"(machine\s\S++\s{1,9}login\s\S++\s{1,9}password\s)(?![{$[]|passw)\S{4,}"
)
_SECRET_NAME_RULES = (  # only with the name of a secret
    ("", "assigned", _SETTER_CALL_PATTERN),
    ("login", "password", _NETRC_PATTERN),
    ("=", "assigned", _COMPARISON_PATTERN),
    ("-", "password", _SECRET_OPTION_PATTERN),
    ("password", "password", _SQL_PASSWORD_PATTERN),
    ("password", "password", _PASSPHRASE_PATTERN),
    ("", "assigned", _ASSIGNED_SECRET_PATTERN),
    ("", "assigned", _KEYED_SECRET_PATTERN),
)
_SECRET_NAME_WORDS = "pass pw secret contrase credential key token".split()
_SECRET_HEADERS = ("authorization", "cookie")
_SECRET_KEY_PATTERN = re.compile(
    "|".join((*_SECRET_NAME_WORDS, *_SECRET_HEADERS, r"^auth\Z")), re.IGNORECASE
)

# Text in quotes with letters of both cases, digits and an entropy above 4.5 bits per
# character.
_QUOTED_RANDOM_PATTERN = r"([\"'])([\w+/=-]{24,512}+)(?=\\{0,3}[\"'])"
_COUNT_ENTROPIES = [0.0, *(count * log2(count) for count in range(1, 513))]
_MIXED_TEXT_PATTERN = (
    r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])(?!sha\d|.*(?:abcdef|ABCDEF|012345))"
)


# Short texts without a secret. One attempt redacts its findings and names several
# times.
_CLEAN_TEXTS: set[str] = set()


def redact(text: str) -> str:
    """Return the text with `[redacted: kind]` in place of every recognised secret.

    Recognised are tokens of common issuers, private keys, hashes of passwords,
    credentials in URLs, headers, commands and SQL, and the values of names such as
    `password`; docs/secrets.md lists it.

    >>> redact("key AKIAIOSFODNN7EXAMPLE in use")
    'key [redacted: aws_key] in use'
    """
    if text in _CLEAN_TEXTS:
        return text
    clean = _mark(text)
    if len(text) <= 200 and clean == text:
        if len(_CLEAN_TEXTS) >= 2_000:
            _CLEAN_TEXTS.clear()
        _CLEAN_TEXTS.add(text)
    return clean


def _mark(text: str) -> str:
    if len(text) < 8 or text.isidentifier():
        return text if len(text) < _MIN_TOKEN_CHARS else _mark_issued(text)
    lower = text.lower()
    long = set(_compiled(rf"\S{{{_MIN_TOKEN_CHARS},}}+").findall(text))
    named = any(map(lower.__contains__, _SECRET_NAME_WORDS))
    for rows in (
        _PREFIX_RULES,
        _LONG_WORD_RULES if long else (),
        _SECRET_NAME_RULES if named else (),
    ):
        for word, kind, pattern in rows:
            if word in lower:
                text = _mark_after(pattern, kind, text)
    if " -" in lower and _compiled(r" -(?:[aPpUuwy]|-user|-proxy-user|-auth)").search(
        text
    ):
        text = _mark_after(_SHELL_COMMAND_PATTERN, "password", text)
    if "-" in lower and _compiled(r"[\"'],\s{0,20}\\{0,3}[\"']-[aApPUuwy-]").search(
        text
    ):
        text = _mark_after(_LIST_COMMAND_PATTERN, "password", text)
    if _forms()[0].search(
        "\n".join(filter(_compiled(_TOKEN_PART_PATTERN).search, long))
    ):
        text = _mark_issued(text)
    if _compiled(_QUOTED_RANDOM_PATTERN).search("\n".join(long)):
        text = _compiled(_QUOTED_RANDOM_PATTERN).sub(_mark_random, text)
    return text


def _mark_issued(text: str) -> str:
    issued, kinds = _forms()
    return issued.sub(
        lambda found: f"[redacted: {kinds[(found.lastindex or 1) - 1]}]", text
    )


def _mark_after(pattern: str, kind: str, text: str) -> str:
    """In each match of the pattern, replace what follows the last group by a mark."""
    mark = f"[redacted: {kind}]"

    def marked(found: re.Match[str]) -> str:
        last = found.lastindex
        return (
            found[0] if last is None else text[found.start() : found.end(last)] + mark
        )

    return _compiled(pattern).sub(marked, text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use, because compiling all patterns takes 6 ms."""
    pattern = pattern.replace("OWNERS", "|".join(_SECRET_OWNERS.split()))
    return re.compile(
        re.sub(r"OWNED(\d)", lambda at: _owned(int(at[1])), pattern), re.ASCII
    )


def _owned(past: int) -> str:
    """Return a pattern for a position `past` characters after a name that is assigned a
    secret.
    """
    owners = sorted(
        (name for one in _SECRET_OWNERS.split() for name in (one, f"{one}_")), key=len
    )
    same = ("|".join(names) for _, names in groupby(owners, len))
    ended = "|".join(f"(?<=(?:{names}).{{{past}}})" for names in same)
    # After a blank, as in "api key: …", only a long value counts.
    long = r"(?=[\w\s\[\]*-]{0,30}?(?:=\S|(?:[:=]|\bis\b)\W{0,9}[^\s\"'`]{10}))"
    ended = f"{ended.replace('_', '[_-]')}|{long}(?:{ended.replace('_', ' ')})"
    assigned = r"(?=[\w-]{0,24}+(?>(?:\\{0,3}[\"'\]*`]){0,2})(?:[ \t]|\s{0,20}+[:=!>,<vV\"'\\]))"
    return rf"(?<=[b-y _-].{{{past}}}){assigned}(?:{ended})"


def _issued() -> list[tuple[str, str]]:
    forms = _ISSUER_TOKENS.strip()
    for name, chars in _CHARACTER_CLASSES.items():
        forms = forms.replace(f"\\{name}", chars)
    issuers = map(str.split, re.split(r"\n(?! )", forms))
    return [(kind, form) for kind, *own in issuers for form in own]


@cache
def _forms() -> tuple[re.Pattern[str], list[str]]:
    """Return a pattern for the tokens of all issuers, and the kind of token of each
    group in it.
    """
    rows = sorted(_issued(), key=lambda row: row[1][0])
    letters = (
        f"{re.escape(letter)}(?:{'|'.join(f'{_begun(form)[1:]}()' for _, form in same)})"
        for letter, same in groupby(rows, lambda row: row[1][0])
    )
    return re.compile("|".join(letters), re.ASCII), [kind for kind, _ in rows]


def _begun(form: str) -> str:
    begin = re.match(r"([\w-]+)<", form)
    # A letter after a backslash belongs to an escape such as a line break.
    return (
        rf"{begin[1]}(?<!(?<!\\)[A-Za-z0-9]{begin[1]}){form[begin.end() :]}"
        if begin
        else form
    )


def _mark_random(found: re.Match[str]) -> str:
    value = found[2]
    if not _compiled(_MIXED_TEXT_PATTERN).match(value):
        return found[0]
    # The entropy of n characters is log n - sum(c log c) / n, where c is how often each
    # occurs.
    bits = log2(len(value)) - sum(
        map(_COUNT_ENTROPIES.__getitem__, Counter(value).values())
    ) / len(value)
    return f"{found[1]}[redacted: random_token]" if bits > 4.5 else found[0]


def redact_data(value: Any, key: str = "") -> Any:
    """Return JSON data without secrets; the value of a `key` such as `password` is a
    secret.
    """
    told = (
        "below"
        if key == _NESTED_KEY
        else _telling(key[-64:].rstrip("0123456789"))
        if key
        else ""
    )
    if isinstance(value, str):
        return _redact_value(value, key, told) if told else redact(value)
    if isinstance(value, dict):
        names: dict[Any, Any] = dict.fromkeys(_VALUE_KEYS, key) if told else {}
        if "value" in value or "Value" in value:
            names |= {
                of: value[name]
                for name, of in _NAME_VALUE_KEYS
                if of in value and name in value
            }
        below = told in ("assigned", "below") or key.lower() in ("cookie", "cookies")
        clean = {}
        for name, one in value.items():
            # Most values are numbers or texts that were found clean before, below a
            # plain name.
            if type(one) not in _NUMBER_TYPES:
                of = str(names.get(name, name))
                of = _NESTED_KEY if below and _telling(of) != "assigned" else of
                plain = type(one) is str and one in _CLEAN_TEXTS and of != _NESTED_KEY
                if not (plain and not _telling(of[-64:].rstrip("0123456789"))):
                    one = redact_data(one, of)
            clean[name if name in _CLEAN_TEXTS else redact_data(name)] = one
        return clean
    if isinstance(value, list | tuple):
        if not any(isinstance(one, str) for one in value):
            return [redact_data(one, key) for one in value]
        # The argument after an option, as in ["--password", …], is named by it.
        options = (
            one if isinstance(one, str) and one[:1] == "-" else key for one in value
        )
        items = [
            redact_data(one, of)
            for one, of in zip(value, (key, *options), strict=False)
        ]
        # The arguments of a command, if one of them is an option.
        line = "\x1f".join([one if isinstance(one, str) else "" for one in items])
        if "\x1f-" not in line or line.count("\x1f") >= len(items):
            return items
        marked = _mark_after(_JOINED_COMMAND_PATTERN, "password", line).split("\x1f")
        return [clean or one for one, clean in zip(items, marked, strict=True)]
    return value


_NUMBER_TYPES = frozenset((int, float, bool, type(None)))
_NAME_VALUE_KEYS = (
    ("name", "value"),
    ("key", "value"),
    ("Name", "Value"),
    ("Key", "Value"),
)
_VALUE_KEYS = "value Value stringValue string_value bytesValue arrayValue kvlistValue values".split()
_NESTED_KEY = "\0"  # the key of what is nested below the name of a secret
# A value with such a key is a secret if it is neither words and numbers nor a time,
# path or URL.
_NESTED_SECRET_PATTERN = re.compile(
    r"(?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])(?!(?>(?:[A-Z]{1,5}[a-z]+|(?<![a-zA-Z\d])(?:[a-z]+|[A-Z]+"
    r"(?![a-z]))|\d{1,6}(?![a-z])|[-_./:#]|(?<=\d)[TZ])+)\Z)[\w.+/~=@!#%&-]{8,}\Z"
)
_SECRET_VALUE_PATTERN = re.compile(rf"{_NO_SECRET_REGEX}\S{{6,}}\Z")


@lru_cache(1_024)
def _telling(key: str) -> str:
    """Return "assigned" if a value of this key is a secret, "named" if it may be one,
    else "".
    """
    if key == "key" or not _SECRET_KEY_PATTERN.search(
        key
    ):  # a `key` alone names a finding
        return ""
    return "assigned" if _compiled(_SECRET_NAME_PATTERN).search(f"{key}=") else "named"


def _redact_value(value: str, key: str, told: str) -> str:
    if (told == "assigned" and _SECRET_VALUE_PATTERN.match(value)) or (
        told == "below" and _NESTED_SECRET_PATTERN.match(value)
    ):
        return "[redacted: assigned]"
    if told == "below" or (len(value) < 12 and key.lower() not in _SECRET_HEADERS):
        return redact(value)  # no other value is as short
    begin = f'"{key}": '
    text = redact(begin + value)
    return text.removeprefix(begin) if text.startswith(begin) else redact(value)
