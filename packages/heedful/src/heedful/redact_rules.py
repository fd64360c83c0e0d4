"""What is recognised as a secret: a table of rules, each with an example.

A rule has a pattern in the syntax of `re`; patterns are compiled with VERBOSE and
ASCII, so blanks in them mean nothing and `#` begins a comment. A match of the pattern
is a secret. If the pattern has a group, only what follows the end of its last group is
the secret, and a match in which no group took part is not a secret. Examples are
written as in docs/secrets.md: `{W20}` stands for 20 random letters and digits.

The rules of a table are applied one after the other, in the order of the tables below.
TOKEN_RULES are the exception: those that a text has are joined into one pattern, so
that no part of a token is marked as another. Each of them begins with fixed characters,
and only a text that has these is searched for it.

Every pattern takes time linear in the length of the text: what repeats without a bound
gives nothing back (`++`, `*+`, `(?>…)`), or ends the pattern. A pattern begins with a
fixed letter and looks back from there, because `re` finds a letter quickly.

Public addresses are left alone: 11 % of 16,000 log lines have one. Hexadecimal in
quotes counts only after a key or token: all others were digests, ids and alphabets.
Base64 in quotes counts only with letters of both cases, digits and no sequence: that
left 14 of 88 texts, all tokens.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from math import log2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One kind of secret, and how it is found.

    `name` says what the rule finds, `kind` is shown in the mark. A rule is applied only
    if the text in lower case contains one of the `keywords`, and if the pattern
    `trigger` is found in it. A token that `starts_word` has no letter or digit before
    it. `accept` judges a secret that the pattern found.
    """

    name: str
    kind: str
    pattern: str
    example: str
    keywords: tuple[str, ...] = ()
    trigger: str = ""
    starts_word: bool = False
    accept: Callable[[str], bool] | None = None


# The names of secrets; one of them is in every text that NAME_RULES are applied to.
SECRET_NAME_WORDS = ("pass", "pw", "secret", "contrase", "credential", "key", "token")
SECRET_HEADER_WORDS = ("authorization", "cookie")

# Parts of the patterns below.

# References, templates, names of variables and parts of expressions are not secrets.
NOT_A_REFERENCE = r"""
    (?!
        \$[A-Za-z_{(]               # $NAME, ${NAME}, $(command)
      | [<{%*),;.|&\]}\[]           # <name>, {name}, %(name)s, ****
      | \+(?!\S{16})
      | [A-Z]++(?>(?:_[A-Z]++)+)(?![^\s"',;)\]}])   # NAME_OF_A_CONSTANT
    )
"""

# Code and prose also assign to names of secrets. So without quotes a secret needs a
# digit or a sign, or it follows "=" directly, as in settings and addresses, and is not
# the name of a secret.
_UNQUOTED_CHARACTER = r"""[^\s"'`,;&()\[\]{}<>]"""
_UNQUOTED_SECRET = rf"""
    (?=[!@#~]?+[^\s"'`,;&()\[\]{{}}<>!@#$~\d]{{0,40}}+[!@#$~\d])
    (?!\d{{1,7}}(?!{_UNQUOTED_CHARACTER}))      # not a short number
    {_UNQUOTED_CHARACTER}{{6,}}+
    (?![(\[{{])                                # not a call
"""

# The owners of a secret: "key", "token" and "pass" count only after one of them, or if
# the value can only be a secret.
_SECRET_OWNERS = (
    "access",
    "account",
    "admin",
    "api",
    "app",
    "auth",
    "bot",
    "client",
    "database",
    "db",
    "encryption",
    "env",
    "export",
    "key",
    "master",
    "preshared",
    "priv",
    "private",
    "refresh",
    "require",
    "root",
    "service",
    "session",
    "signing",
    "smtp",
    "subscription",
    "user",
)


def _after_owner(distance: int) -> str:
    """Return a condition: an owner ends `distance` characters before this position.

    So in "api_key", "api_" ends 3 characters before the end. A value has to be assigned
    to the name, which goes on from here. After a blank, as in "api key: …", only a long
    value counts.
    """
    names = [*_SECRET_OWNERS, *(f"{owner}_" for owner in _SECRET_OWNERS)]
    names.sort(key=len)
    # A pattern that looks back has to have a fixed length, so there is one for each
    # length of a name.
    conditions = [
        rf"(?<=(?:{'|'.join(same_length)}).{{{distance}}})"
        for _, same_length in groupby(names, len)
    ]
    joined = "|".join(conditions)
    after_name = joined.replace("_", "[_-]")
    after_blank = joined.replace("_", "[ ]")

    # First a quick look at the character where an owner would end; then the rest of the
    # name, and what assigns a value to it; at last the owner, before a name or a blank.
    return rf"""
        (?<=[b-y _-].{{{distance}}})
        (?=
            [\w-]{{0,24}}+(?>(?:\\{{0,3}}["'\]*`]){{0,2}})
            (?:[ \t]|\s{{0,20}}+[:=!>,<vV"'\\])
        )
        (?:
            {after_name}
          | (?=[\w\s\[\]*-]{{0,30}}?(?:=\S|(?:[:=]|\bis\b)\W{{0,9}}[^\s"'`]{{10}}))
            (?:{after_blank})
        )
    """


# Secrets in a place of their own, whatever they look like.

_SQL_PASSWORD_PATTERN = rf"""
    (
        [pPiI]
        (?i:
            (?<=p)assword(?:\s{{1,9}}|\()'
          | (?<!revision\s[iI])(?<=i)dentified\s{{1,9}}
            (?:with\s{{1,9}}\S{{1,40}}\s{{1,9}})?by\s{{1,9}}(?:password\s{{1,9}})?(?:['"]|(?=[\w$#]{{1,40}};))
        )
    )
    {NOT_A_REFERENCE}
    (?:(?<=')[^'\n]{{6,64}}+(?=';)|[^\s"';)]{{4,}}+(?!['"],))
"""
# Four or more plain words, in quotes or up to the end of the line, that are no
# sentence.
_PASSPHRASE_PATTERN = r"""
    (
        [pPmM]
        (?i:
            (?<=m)nemonic
          | (?<=p)hrase(?:(?<=(?:pass|seed)phrase)|(?<=(?:pass|seed|very).phrase))
          | (?<=p)assword
        )
        (?:\\{0,3}["'])?\s{0,9}[:=]\s{0,9}\\{0,3}["']?
    )
    (?=
        [a-zA-Z]{3,12}(?>(?:[ -][a-zA-Z]{3,12}){3,24})
        (?:\\{0,3}["']|\s{0,9}(?:\n|\Z))
    )
    (?!
        (?:\w{1,12}[ -]){0,24}
        (?i:must|not|the|and|for|has|have|with|should|required|least|cannot|please|your
        |this|are|was|will|can|too|new|from|enter|see|user|use|is|to|of|in|or|by|on|if|it
        |as|no|be|only|same|string|none|invalid|incorrect|wrong|failed)\b
    )
    [a-zA-Z -]++
"""
PLACE_RULES = (
    Rule(
        name="private key in a file",
        kind="private_key",
        pattern=r"""
            ()
            (?:
                -{4,5}[ ]?BEGIN[ ][A-Z0-9 ]{0,30}
                (?:PRIVATE[ ]KEY(?:[ ]BLOCK)?|[\w ]{0,30}key[ ]V1)[ ]?-{4,5}
                (?>(?:[^-]++|-(?!---))*)
                (?:-{4,5}[ ]?END[ ][\w ]{1,40}-{4,5})?
              | PuTTY-User-Key-File-\d(?s:.)*?(?:Private-MAC:[ ]?\w+|\Z)
            )
        """,
        keywords=("private", "static key"),
        example="-----BEGIN PRIVATE KEY-----\\n{W64}\\n-----END PRIVATE KEY-----",
    ),
    Rule(
        name="password in a URL",
        kind="password_in_url",
        # A password ends at the last "@" before the path. It may contain "/", but not
        # after a port.
        pattern=r"""
            (://)
            (?:
                (?=[\w-]{20,200}+@)(?=[\w-]{0,60}\d)    # a user name that is a token
              | [^\s/:'"\[]*+:                          # a user name and a password
                (?!\$?[{<]|%[sd(]|\d{1,5}[/?#])(?=[^\s@'"])
            )
            [^\s/@'"]*+[^\s@'"]{0,60}+
            (?>(?:@[^\s/@'",]*+(?=@))*)
            (?=@)
        """,
        keywords=("://",),
        example="postgres://bob:{W12}@db/x",
    ),
    Rule(
        name="authorization header",
        kind="authorization",
        # After any scheme but a bearer's; `auth` is in the settings of Docker and npm.
        pattern=rf"""
            (
                (?:uthorization|UTHORIZATION|_auth|"auth)
                (?:\\{{0,3}}["'])?\s{{0,20}}[:=]\s{{0,20}}(?:\\{{0,3}}["'])?
                (?!(?i:bearer)\s[\w.~+/=-]{{20}})
                (?>(?:[A-Za-z][\w-]{{1,30}}\s{{1,3}})?)
            )
            {NOT_A_REFERENCE}
            (?![\w.]{{1,60}}[(}}])
            (?:(?<=(?i:basic)\s)|(?=[^\s"']{{0,60}}\d)|(?=[\w+/]{{8,99}}={{1,2}}["'\\]))
            [^\s"'\\]{{8,}}+
        """,
        keywords=("auth",),
        example="Authorization: Basic {W40}=",
    ),
    Rule(
        name="cookie header",
        kind="cookie",
        pattern=r"""
            ((?i:ookie)(?:\\{0,3}["'])?\s{0,20}:\s{0,20}(?:\\{0,3}["'])?)
            [\w.%+-]{1,64}=[^\s;"']*+
            (?>(?:;\s{0,20}[\w.%+-]{1,64}=[^\s;"']*+)*)
        """,
        keywords=("cookie",),
        example="Cookie: theme=dark; session={W12}",
    ),
    Rule(
        name="password of a user in SQL",
        kind="password",
        pattern=_SQL_PASSWORD_PATTERN,
        keywords=("identified",),
        example="CREATE USER bob IDENTIFIED BY '{L9}'",
    ),
    Rule(
        name="password that a shell pipes to a command",
        kind="password",
        pattern=r"""
            (echo\s{1,3}(?:-\w\s{1,3})?["']?)
            (?!\$)[^\s"'|]{4,80}
            (?=["']?\s{0,3}\|\s{0,3}(?:sudo\s-S|(?:sudo\s)?chpasswd|[^|\n]{0,80}?-stdin))
        """,
        keywords=("echo ",),
        example="echo {W9} | docker login -u bob --password-stdin",
    ),
    Rule(
        name="pass phrase or mnemonic",
        kind="password",
        pattern=_PASSPHRASE_PATTERN,
        keywords=("mnemonic", "phrase"),
        example="passphrase: {L5} {L7} {L7} {L5}",
    ),
)

# Parts of a long word.
MIN_LONG_WORD_CHARS = 16
LONG_WORD_RULES = (
    Rule(
        name="bearer token",
        kind="bearer",
        pattern=r"([eE](?i:arer)[ ]{1,3})[\w.~+/=-]{20,}",
        keywords=("bearer",),
        example="bearer {W24}",
    ),
    Rule(
        name="Telegram bot token",
        kind="chat_token",
        pattern=r"(:(?<=\d{8}:))[\w-]{35}(?![\w-])",
        keywords=(":",),
        example="1234567890:AA{R33}",
    ),
    Rule(
        name="line of a PostgreSQL password file",
        kind="password",
        pattern=r"(:5432:[\w*-]{1,64}+:[\w*-]{1,64}+:)\S++(?=\n|\Z)",
        keywords=(":5432:",),
        example="localhost:5432:shop:bob:{W9}",
    ),
    Rule(
        name="Mailchimp key",
        kind="mail_key",
        pattern=r"()(?<![0-9a-z])[0-9a-z]{32,}+-us\d{1,2}",
        keywords=("-us",),
        example="{H32}-us14",
    ),
    Rule(
        name="Azure client secret",
        kind="cloud_key",
        pattern=r"()[\w.~]{3}\dQ~[\w.~-]{31,34}",
        keywords=("q~",),
        example="{W3}8Q~{R34}",
    ),
    Rule(
        name="Terraform Cloud token",
        kind="cloud_key",
        pattern=r"()[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}",
        keywords=(".atlasv1.",),
        example="{W14}.atlasv1.{W67}",
    ),
)

# Secrets that have a name.

_NAME_CLOSE = r"""(?>(?:\\{0,3}["'*`]|(?<=["'])\]){0,2})"""
# The first letter, then the second, and the rest of either; then what comes between the
# name and its value.
SECRET_NAME_PATTERN = (
    rf"""
    [pPsScCkKtT]
    (?:
        [aA](?<=[pP].)(?i:ssw(?:or[dt]|d)|ssphrase|ss{_after_owner(4)})
      | [wW](?<=[pP].)[dD](?![^\w\s]{{1,4}}\s{{0,20}}[/~.])   # not a working directory
      | [eE](?i:(?<=s.)cret(?!ar)|(?<=k.)y{_after_owner(3)})
      | [oO]
        (?i:
            (?<=t.)ken
            (?:
                {_after_owner(5)}
              | (?<![\w-].{{5}})    # `token` alone: letters and digits mixed
                (?=
                    [\s\\"'*`\]]{{0,9}}[:=][\s\\"'`]{{0,9}}(?=[\w.+/~=-]{{12}})
                    \d{{0,20}}+(?:[_-]?[A-Za-z][A-Za-z_-]{{0,30}}\d{{1,20}}+){{2}}
                )
            )
          | (?<=c.)ntrase[nñÑ]a
        )
      | [rR](?<=[cC].)(?i:edential)
    )
    [\w-]{{0,24}}+
    {_NAME_CLOSE}
    (?:\s(?:\[[\w*]{{1,24}}\]|\d)(?=:))?
    (?=[\s:=!>,<])
    """
    r"""
    (?>
        (?<!-)>
      | \s{0,20}+
        (?:
            :\s{0,20}+[\w.\[\] |]{1,40}+=\s{0,20}+(?=\\{0,3}["'])   # its type
          | (?:[:=!]{1,3}>?|(?<=\s)is:?\s(?=["'`]?[^\s"'`]{0,40}[\d!@#$]))\s{0,20}+
            (?:(?:\*\*|</\w{1,9}>|[|>][+-]?\s)\s{0,20}+)?`?     # Markdown, HTML, YAML
          | (?=[,<\\"'vVsS])        # as in {"name": …, "value": …}, also in XML
            ,?\s{0,20}+(?:</\w{1,20}>\s{0,20}+<|\\{0,3}["']?)
            (?i:value|string)\\{0,3}["']?\s{0,20}+[:=>]\s{0,20}+
          | (?<=\s)(?=\\{0,3}["'][^"'\n]{2,}+["'];)
          | (?<=[ \t])              # at the end of a line, as in settings and commands
            (?:\d[ ])?(?!-|\w{1,64}=\w)(?=[^\s"']{6,}+\s{0,9}(?:\n|\Z))
        )
    )
    (?>
        (?:
            \[?\{\s{0,20}+\\{0,3}["'](?i:(?:string_?|array)?values?)
            \\{0,3}["']\s*+:\s*+
        ){0,4}
    )
    """
)
_QUOTED_VALUE = rf"""
    [bBrRuUN@]?\\{{0,3}}["']
    {NOT_A_REFERENCE}
    ()
    (?:
        (?=[^\s"']{{6}})
        [^\s"'\\]*+(?>(?:\\(?!\\{{0,2}}["'])[^\s"'\\]*+)*)
        (?=\\{{0,3}}["']|[^"'\n]*+(?:\n|\Z))
      | (?:(?<==["'])|(?<==\s["']))[^"'\n]{{8,}}+(?=["'])
    )
"""
# A name also takes a long value that is not a secret; otherwise a value that repeats
# itself would be tried again from each of its positions.
_BARE_VALUE = rf"""
    {NOT_A_REFERENCE}
    ()
    (?:
        {_UNQUOTED_SECRET}
      | (?:(?<=\w=)|(?<=\w>)(?=[\w-]{{1,64}}</))
        (?=[A-Za-z_-]{{8,64}}+(?![^\s&;"'<>`\\]))
        (?![A-Za-z_-]{{0,60}}(?i:secret|key|token|pass|pwd|cred))
        [A-Za-z_-]++
      | [a-z]{{20,64}}+(?![\w.([])
    )
  | {_UNQUOTED_CHARACTER}{{64,}}+
"""
# The word for a password in the languages of the users who do not write the English
# one. "Passwort" and "contraseña" are found as names above. "clave" is a key of any
# sort, so it needs "de acceso".
FOREIGN_NAME_WORDS = (
    "mot de passe",
    "mot_de_passe",
    "motdepasse",
    "mdp",
    "kennwort",
    "clave de acceso",
    "senha",
    "wachtwoord",
    "hasło",
    "пароль",
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "暗証番号",
    "비밀번호",
)
_FOREIGN_NAMES = "|".join(FOREIGN_NAME_WORDS).replace(" ", "[ ]")
FOREIGN_NAME_PATTERN = rf"""
    (?<![A-Za-z0-9])(?iu:{_FOREIGN_NAMES})
    [A-Za-z0-9_-]{{0,24}}+
    {_NAME_CLOSE}
    (?:
        \s{{0,3}}+[:：=]{{1,2}}+>?\s{{0,20}}+
      | \s{{1,3}}+(?:est|is|ist|es|é|это|是)[ ]
      | [是为為は]
    )
"""
NAME_RULES = (
    Rule(
        name="argument of a call that sets a secret",
        kind="assigned",
        pattern=rf"""
            (
                [sSdD]
                (?i:
                    (?:(?<=s)et_?|(?<=d)efine\W{{1,3}})\w{{0,30}}?
                    (?:passw\w|secret|token|api_?key)\w{{0,9}}+
                  | (?<=s)ecret-?str(?:ing)?\b
                )
                (?:(?<=[A-Z])["'],\s?|\(|\s{{1,9}})\\{{0,3}}["']
            )
            {NOT_A_REFERENCE}
            [^\s"'\\]{{6,}}+(?=\\{{0,3}}["'])
        """,
        example='dataSource.setPassword("{L9}")',
    ),
    Rule(
        name="line of a .netrc file",
        kind="password",
        pattern=r"""
            (machine\s\S++\s{1,9}login\s\S++\s{1,9}password\s)
            (?![{$[]|passw)\S{4,}
        """,
        keywords=("login",),
        example="machine example.com login bob password {L9}",
    ),
    Rule(
        name="text compared with a secret",
        kind="assigned",
        pattern=rf"""
            (["'])
            [^\s"']{{6,}}+
            (?=
                ["']\s{{0,20}}[!=]={{1,2}}\s{{0,20}}[\w.]{{0,30}}?
                (?i:
                    passw|passphrase|pwd|secret|contrase
                  | (?:{"|".join(_SECRET_OWNERS)})_?(?:key|token|pass)
                )
            )
        """,
        keywords=("=",),
        example='if "{W12}" != password:',
    ),
    Rule(
        name="option of a command for a secret",
        kind="password",
        pattern=rf"""
            (
                -(?=[a-zA-Z])(?<!\w-)(?:[a-zA-Z]{{2,20}}+-){{0,3}}
                (?>(?i:
                    (?:store|key|require)?pass(?:word|wd|phrase|code)?
                  | pwd?
                  | secret
                  | token
                  | (?:api|access|auth|account|client|master)[_-]?key
                ))
                (?:\s{{1,3}}+["']?|["'],\s{{0,20}}["'])
            )
            (?!-|id=|type=)
            {NOT_A_REFERENCE}
            (?:
                (?<=\s["'])[^"'\n]{{4,}}+(?=["'])
              | {_UNQUOTED_SECRET}
              | (?!requires)[a-z]{{8,40}}+(?=\s{{1,3}}-)
            )
        """,
        keywords=("-",),
        example="vault login --token {W24}",
    ),
    Rule(
        name="password in SQL",
        kind="password",
        pattern=_SQL_PASSWORD_PATTERN,
        keywords=("password",),
        example="CREATE ROLE bob WITH LOGIN PASSWORD '{W9}';",
    ),
    Rule(
        name="pass phrase of a password",
        kind="password",
        pattern=_PASSPHRASE_PATTERN,
        keywords=("password",),
        example="password: {L5} {L7} {L7} {L5}",
    ),
    Rule(
        name="value of a name of a secret",
        kind="assigned",
        pattern=rf"""
            {SECRET_NAME_PATTERN}
            (?:{_QUOTED_VALUE}|{_BARE_VALUE})?
        """,
        example="AWS_SECRET_ACCESS_KEY={W12}",
    ),
    Rule(
        name="long value after a key, token or password",
        kind="assigned",
        pattern=rf"""
            (
                [kKtTpP]
                (?:
                    [eE](?<=[kK].)[yY]
                  | [oO](?<=[tT].)(?i:ken)
                  | [aA](?<=[pP].)(?i:ss(?:word)?)
                  | [wW](?<=[pP].)[dD]?
                )
                (?=[\\"'\]\s:=!])
                {_NAME_CLOSE}
                (?:(?:\s\d)?\s{{0,20}}+[:=!]{{1,3}}+>?\s{{0,20}}+|[ \t]{{1,20}}+)
                (?:\\{{0,3}}["'`])?
            )
            (?=[\w+/~-]{{20}})(?=[\w+/~-]{{0,60}}\d)
            (?:
                [\w-]{{44}}(?![\w-])
              | [0-9A-Za-z]{{64}}
              | [0-9a-fA-F]{{32,}}
              | (?=[\w+/~-]{{0,60}}[a-z])(?=[\w+/~-]{{0,60}}[A-Z])
                [\w+/~-]{{20,}}+={{0,2}}
            )
            (?>(?:[\w+/~%=-]|\.\w)*)
        """,
        example="the key '{W40}'",
    ),
)

# Names that are not English, and PINs: texts need none of SECRET_NAME_WORDS for them.
OTHER_NAME_RULES = (
    Rule(
        name="value of the word for a password in another language",
        kind="assigned",
        # Chinese, Japanese and Korean have no blanks: what follows the name may be a
        # sentence with a number in it, as in "密码：请输入6到16位字符".
        pattern=rf"""
            {FOREIGN_NAME_PATTERN}
            (?:{_QUOTED_VALUE}|(?!\S{{0,5}}[\u3040-\u9fff\uac00-\ud7af]){_BARE_VALUE})?
        """,
        keywords=FOREIGN_NAME_WORDS,
        example="mot de passe : {W12}",
    ),
    Rule(
        name="personal identification number",
        kind="assigned",
        # "PIN: 4821", "pin code is 4821", "code pin = 123456", also with a colon of
        # full width; not "pin: 1500", which may be one of a board.
        pattern=r"""
            (?<![\w-])(?:PIN|Pin|(?i:code[ _-]pin|pin[ _-]?(?:code|number|nummer)))
            \\{0,3}["'*]{0,2}
            (?:\s{0,3}[:：=]{1,2}>?\s{0,3}|[ ](?:is|est|ist|es)[ ])\\{0,3}["'`]?
            ()
            \d{4,8}(?![\w.,:/-]?\w)
        """,
        keywords=("pin",),
        example="PIN: {D4}",
    ),
)

# Passwords in the arguments of commands.


def _command_pattern(
    blank: str, *, gap: str, word: str, quote: str, secret: str
) -> str:
    """Return a pattern for the programs that take a password by a short option.

    The arguments before the option are skipped; without the option they are the match,
    so that no argument is read twice. `blank` ends an argument, `gap` comes between
    two, `word` is one, `quote` may begin one, and `secret` is one with a password.
    """
    # A user and a password in one argument: "-u bob:PASSWORD", "--user=bob:PASSWORD".
    user_option = (
        rf"""-(?:[auU]|-auth|-[a-z-]{{0,6}}user)(?:{blank}|=)?"""
        rf"""{quote}[^\s"']{{1,64}}?[:%]"""
    )
    # The option by the names of the programs that have it.
    options = {
        r"mysql\w{0,12}+|mariadb[\w-]{0,12}+|7z[ar]?": r"-p(?=\S)",  # -pPASSWORD
        r"login|sshpass|twine|mongo\w{0,8}+|cqlsh": rf"-p(?:{blank})?",  # -p PASSWORD
        r"sqlcmd|zip": rf"-P(?:{blank})?",  # -P PASSWORD
        r"curl|https?|smbclient": user_option,
        r"redis-cli|ldap[a-z]{3,9}": rf"-[awy]{blank}",  # -a PASSWORD
        r"openssl": rf"-pass\w{{0,3}}{blank}pass:",  # -passin pass:PASSWORD
    }

    # The name of a program, the arguments before the option, and the option with its
    # secret.
    commands = [
        rf"""
        (?:{programs})(?={blank})
        (?>(?:{gap}(?!{option}){word})*)
        (?:({gap}{option}{quote}){NOT_A_REFERENCE}{secret})?
        """
        for programs, option in options.items()
    ]
    return "|".join(commands)


# Arguments in quotes in a list, with names between them.
_LIST_QUOTE = r"""\\{0,3}["']"""
_LIST_COMMA = r"\s{0,20},\s{0,20}"
_LIST_TEXT = (
    rf"""(?:[^"'\\\n]++|{_LIST_QUOTE}(?!\s{{0,20}}[\],)])|\\(?!\\{{0,2}}["']))"""
)
_LIST_GAP = (
    rf"{_LIST_QUOTE}{_LIST_COMMA}"
    rf"(?>(?:[\w.]{{1,64}}{_LIST_COMMA}){{0,8}}){_LIST_QUOTE}"
)
_LIST_COMMAND_PATTERN = _command_pattern(
    f"{_LIST_QUOTE}{_LIST_COMMA}{_LIST_QUOTE}",
    gap=_LIST_GAP,
    word=f"(?>{_LIST_TEXT}*)",
    quote="",
    secret=(
        r"""(?:(?<!["'])|(?!-))(?=[^\s"'](?:[^"'\n]|'\w){3})"""
        rf"""(?>{_LIST_TEXT}+)"""
    ),
)
COMMAND_RULES = (
    Rule(
        name="password of a command in a shell",
        kind="password",
        pattern=_command_pattern(
            r"\s",
            # A command ends with its line, unless a backslash continues it.
            gap=r"(?>(?:[^\S\n]|(?<=\\)\n|(?<=\\\r)\n){1,9})",
            word=r"""(?:"[^"\n]{0,400}+"|'[^'\n]{0,400}+'|(?>[^\s;|&"']+))+""",
            quote=r"""["']?""",
            secret=r"""(?:(?<=["'])[^"'\n]{4,}+(?=["'])|[^\s"'`;|&()<>]{4,}+)""",
        ),
        keywords=(" -",),
        trigger=r"[ ]-(?:[aPpUuwy]|-user|-proxy-user|-auth)",
        example="mysql -u root -p{W12} shop",
    ),
    Rule(
        name="password of a command in a list",
        kind="password",
        pattern=_LIST_COMMAND_PATTERN,
        keywords=("-",),
        trigger=r"""["'],\s{0,20}\\{0,3}["']-[aApPUuwy-]""",
        example='["mysql", "-u", "root", "-p{W9}"]',
    ),
)
# The arguments of a command in JSON data, joined by this character.
ARGUMENT_SEPARATOR = "\x1f"
JOINED_COMMAND_RULE = Rule(
    name="password of a command in JSON data",
    kind="password",
    pattern=_command_pattern(
        r"\x1f",
        gap=r"\x1f",
        word=r"[^\x1f]*+",
        quote="",
        secret=r"(?:(?<!\x1f)|(?!-))(?=[^\s\x1f]{4})[^\x1f]++",
    ),
    example="mysql\x1f-u\x1froot\x1f-p{W9}",
)

# Random text in quotes, in a text with a long word.


def _is_random(text: str) -> bool:
    """Return whether a text has letters of both cases, digits and a high entropy."""
    # No digest and no sequence.
    is_mixed = r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])(?!sha\d|.*(?:abcdef|ABCDEF|012345))"
    if not re.match(is_mixed, text, re.ASCII):
        return False

    # The entropy of n characters is log n - sum(c log c) / n, where c is how often each
    # occurs; it is in bits of each character.
    repetition = sum(count * log2(count) for count in Counter(text).values())
    return log2(len(text)) - repetition / len(text) > 4.5


RANDOM_TEXT_RULE = Rule(
    name="random text in quotes",
    kind="random_token",
    pattern=r"""(["'])[\w+/=-]{24,512}+(?=\\{0,3}["'])""",
    accept=_is_random,
    example='call("{W40}")',
)

# Tokens in the form that their issuers give them.

# Every token has such a part; few ordinary words have one, and only these are searched.
TOKEN_PART_PATTERN = (
    r"(?:(?=[a-z_.=~-]{0,40}+[A-Z\d])|(?=[a-z]{2,9}[_-][\w-]{20}))[\w.=~+-]{16,}+"
)
TOKEN_RULES = (
    Rule(
        name="AWS access key",
        kind="aws_key",
        pattern="A(?:KIA|SIA|BIA|CCA|3T[A-Z0-9])[A-Z0-9]{16}",
        example="AKIA{UD16}",
    ),
    Rule(
        name="AWS Bedrock key",
        kind="aws_key",
        pattern=r"ABSK[\w+/]{80,}+={0,2}",
        example="ABSK{W110}",
    ),
    Rule(
        name="AWS Marketplace (MWS) key",
        kind="aws_key",
        pattern=r"amzn\.mws\.[0-9a-f-]{36}",
        example="amzn.mws.{UUID}",
    ),
    Rule(
        name="AWS AppSync key",
        kind="aws_key",
        pattern=r"da2-[a-z0-9]{26}(?!\w)",
        example="da2-{LD26}",
    ),
    Rule(
        name="Google API key",
        kind="google_key",
        pattern=r"AIza[\w-]{35}",
        example="AIza{R35}",
    ),
    Rule(
        name="Google OAuth client secret",
        kind="google_key",
        pattern=r"GOCSPX-[\w-]{28}",
        example="GOCSPX-{R28}",
    ),
    Rule(
        name="Google OAuth access token",
        kind="google_key",
        pattern=r"ya29\.[\w-]{20,}",
        example="ya29.{R60}",
    ),
    Rule(
        name="Google OAuth refresh token",
        kind="google_key",
        pattern=r"1//0[\w-]{28,}",
        example="1//0{R40}",
    ),
    Rule(
        name="Google OAuth code",
        kind="google_key",
        pattern=r"4/0A[\w-]{30,}",
        example="4/0A{R60}",
    ),
    Rule(
        name="DigitalOcean token",
        kind="cloud_key",
        pattern="do[opr]_v1_[0-9a-f]{64}",
        example="dop_v1_{H64}",
    ),
    Rule(
        name="Databricks token",
        kind="cloud_key",
        pattern="dapi[0-9a-f]{32}",
        example="dapi{H32}",
    ),
    Rule(
        name="Alibaba Cloud access key",
        kind="cloud_key",
        pattern="LTAI[A-Za-z0-9]{20}",
        example="LTAI{W20}",
    ),
    Rule(
        name="Scaleway access key",
        kind="cloud_key",
        pattern=r"SCW[A-Z0-9]{17}(?!\w)",
        starts_word=True,
        example="SCW{UD17}",
    ),
    Rule(
        name="Doppler token",
        kind="cloud_key",
        pattern=r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}",
        example="dp.st.dev.{W43}",
    ),
    Rule(
        name="Vault token",
        kind="cloud_key",
        pattern=r"hv[sbr]\.[\w-]{20,}",
        example="hvs.{R90}",
    ),
    Rule(
        name="PlanetScale token",
        kind="cloud_key",
        pattern=r"pscale_[a-z]{2,5}_[\w.=-]{32,}",
        example="pscale_tkn_{R43}",
    ),
    Rule(
        name="Supabase token",
        kind="cloud_key",
        pattern="sbp_[0-9a-f]{40}",
        example="sbp_{H40}",
    ),
    Rule(
        name="Supabase secret key",
        kind="cloud_key",
        pattern=r"sb_secret_[\w-]{20,}",
        example="sb_secret_{R31}",
    ),
    Rule(
        name="Pulumi token",
        kind="cloud_key",
        pattern="pul-[0-9a-f]{40}",
        example="pul-{H40}",
    ),
    Rule(
        name="SoftLayer key in an address",
        kind="cloud_key",
        pattern=r"api\.softlayer\.com/soap/v3(?:\.1)?/[A-Za-z0-9]{64}",
        example="api.softlayer.com/soap/v3.1/{LD64}",
    ),
    Rule(
        name="Cloudflare Origin CA key",
        kind="cloud_key",
        pattern=r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}",
        example="v1.0-{H24}-{H146}",
    ),
    Rule(
        name="Fly token",
        kind="cloud_key",
        pattern=r"fm[12][ar]?_[\w+/]{40,}+={0,2}",
        example="fm2_{W120}",
    ),
    Rule(
        name="Fly OAuth token",
        kind="cloud_key",
        pattern=r"fo1_[\w-]{40,}",
        example="fo1_{R43}",
    ),
    Rule(
        name="Tailscale key",
        kind="cloud_key",
        pattern=r"tskey-[a-z]{3,9}-[\w-]{20,}",
        example="tskey-auth-{W30}",
    ),
    Rule(
        name="Netlify token",
        kind="cloud_key",
        pattern=r"nfp_\w{36,}",
        example="nfp_{W40}",
    ),
    Rule(
        name="Neon key",
        kind="cloud_key",
        pattern="napi_[a-z0-9]{40,}",
        example="napi_{LD60}",
    ),
    Rule(
        name="Render key",
        kind="cloud_key",
        pattern="rnd_[A-Za-z0-9]{28,}",
        example="rnd_{W32}",
    ),
    Rule(
        name="Heroku key",
        kind="cloud_key",
        pattern=r"HRKU-[\w-]{36,}",
        example="HRKU-{R60}",
    ),
    Rule(
        name="OpenShift token",
        kind="cloud_key",
        pattern=r"sha256~[\w-]{43}",
        example="sha256~{R43}",
    ),
    Rule(
        name="GitHub token",
        kind="github_token",
        pattern=r"gh[oprsu]_\w{36,}",
        example="ghp_{W36}",
    ),
    Rule(
        name="GitHub fine-grained token",
        kind="github_token",
        pattern=r"github_pat_\w{22,}",
        example="github_pat_{W22}_{W59}",
    ),
    Rule(
        name="GitLab token",
        kind="gitlab_token",
        pattern=(
            r"gl(?:pat|dt|ft|soat|rt|rtr|cbt|imt|ptt|agent|oas|ffct|wt)"
            r"-[\w.-]{20,}"
        ),
        example="glpat-{R20}",
    ),
    Rule(
        name="GitLab runner registration token",
        kind="gitlab_token",
        pattern=r"GR1348941[\w-]{20,}",
        example="GR1348941{R20}",
    ),
    Rule(
        name="Bitbucket app password",
        kind="tool_token",
        pattern="ATBB[A-Za-z0-9]{28,}",
        example="ATBB{W32}",
    ),
    Rule(
        name="Bitbucket access token",
        kind="tool_token",
        pattern=r"ATCTT3[\w=-]{60,}",
        example="ATCTT3{R180}",
    ),
    Rule(
        name="Trello token",
        kind="tool_token",
        pattern="ATTA[0-9a-f]{64}",
        example="ATTA{H64}",
    ),
    Rule(
        name="CircleCI token",
        kind="tool_token",
        pattern=r"CCIPAT_\w{40,}",
        example="CCIPAT_{W22}_{H40}",
    ),
    Rule(
        name="Buildkite token",
        kind="tool_token",
        pattern="bk(?:aj|at|ct|ua)_[a-z0-9]{32,}",
        example="bkua_{H40}",
    ),
    Rule(
        name="Sonar token",
        kind="tool_token",
        pattern="sq[apu]_[0-9a-f]{40}",
        example="squ_{H40}",
    ),
    Rule(
        name="Linear key",
        kind="tool_token",
        pattern="lin_(?:api|oauth)_[A-Za-z0-9]{32,}",
        example="lin_api_{W40}",
    ),
    Rule(
        name="Notion token",
        kind="tool_token",
        pattern="ntn_[A-Za-z0-9]{40,}",
        example="ntn_{W46}",
    ),
    Rule(
        name="Notion integration secret",
        kind="tool_token",
        pattern=r"secret_[A-Za-z0-9]{43}(?!\w)",
        example="secret_{W43}",
    ),
    Rule(
        name="Atlassian API token",
        kind="tool_token",
        pattern=r"ATATT3[\w=-]{60,}",
        example="ATATT3xFfGF0{R180}",
    ),
    Rule(
        name="Postman key",
        kind="tool_token",
        pattern="PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        example="PMAK-{H24}-{H34}",
    ),
    Rule(
        name="New Relic key",
        kind="tool_token",
        pattern=r"NR(?:AK|II|JS|RA)-[\w-]{19,}",
        example="NRAK-{UD27}",
    ),
    Rule(
        name="Grafana service account token",
        kind="tool_token",
        pattern="glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}",
        example="glsa_{W32}_{H8}",
    ),
    Rule(
        name="Grafana Cloud token",
        kind="tool_token",
        pattern=r"glc_eyJ[\w+/-]{30,}+={0,2}",
        example="glc_eyJ{W60}",
    ),
    Rule(
        name="Sentry token",
        kind="tool_token",
        pattern=r"sntry[su]_[\w+/=-]{40,}",
        example="sntrys_{W60}",
    ),
    Rule(
        name="Figma token",
        kind="tool_token",
        pattern=r"fig[do]_[\w-]{40}",
        example="figd_{R40}",
    ),
    Rule(
        name="Airtable token",
        kind="tool_token",
        pattern=r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        example="pat{W14}.{H64}",
    ),
    Rule(
        name="HubSpot token",
        kind="tool_token",
        pattern=r"pat-[a-z]{2}\d-[0-9a-f-]{36}",
        example="pat-na1-{UUID}",
    ),
    Rule(
        name="ClickUp token",
        kind="tool_token",
        pattern=r"pk_\d{5,}+_[A-Z0-9]{32}",
        example="pk_{D8}_{UD32}",
    ),
    Rule(
        name="Contentful token",
        kind="tool_token",
        pattern=r"CFPAT-[\w-]{43}",
        example="CFPAT-{R43}",
    ),
    Rule(
        name="Dropbox token",
        kind="tool_token",
        pattern=r"sl\.(?:u\.)?[\w-]{130,}",
        example="sl.{R135}",
    ),
    Rule(
        name="Asana token",
        kind="tool_token",
        pattern=r"1/\d{10,}+:[0-9a-f]{32}",
        example="1/{D16}:{H32}",
    ),
    Rule(
        name="Asana token of an app",
        kind="tool_token",
        pattern=r"2/\d{10,20}/\d{10,20}:[0-9a-f]{32}",
        example="2/{D16}/{D16}:{H32}",
    ),
    Rule(
        name="1Password service account token",
        kind="tool_token",
        pattern=r"ops_eyJ[\w+/-]{80,}+={0,2}",
        example="ops_eyJ{W250}",
    ),
    Rule(
        name="PostHog key",
        kind="tool_token",
        pattern="ph[cx]_[A-Za-z0-9]{40,}",
        example="phx_{W43}",
    ),
    Rule(
        name="Logfire token",
        kind="tool_token",
        pattern=r"pylf_v\d_[a-z]{2}_\w{40,}",
        example="pylf_v1_us_{W43}",
    ),
    Rule(
        name="LaunchDarkly key",
        kind="tool_token",
        pattern="s(?:dk|api)-[0-9a-f]{8}-[0-9a-f-]{27}",
        example="sdk-{UUID}",
    ),
    Rule(
        name="Okta token",
        kind="tool_token",
        pattern=r"00(?=[\w-]{0,39}[a-z])(?=[\w-]{0,39}[A-Z])[\w-]{40}(?![\w-])",
        starts_word=True,
        example="00{R40}",
    ),
    Rule(
        name="npm token",
        kind="package_token",
        pattern=r"npm_\w{36}",
        example="npm_{W36}",
    ),
    Rule(
        name="PyPI token",
        kind="package_token",
        pattern=r"pypi-AgE[\w-]{50,}",
        example="pypi-AgEIcHlwaS5vcmc{R90}",
    ),
    Rule(
        name="RubyGems key",
        kind="package_token",
        pattern="rubygems_[0-9a-f]{48}",
        example="rubygems_{H48}",
    ),
    Rule(
        name="Docker Hub token",
        kind="package_token",
        pattern=r"dckr_[op]at_[\w-]{27,}",
        example="dckr_pat_{R27}",
    ),
    Rule(
        name="Artifactory key",
        kind="package_token",
        pattern=r"AKC[A-Za-z0-9]{10,}+(?![\w+/-])",
        starts_word=True,
        example="AKCp{W69}",
    ),
    Rule(
        name="Artifactory password",
        kind="package_token",
        pattern=r"AP[0-9A-F][A-Za-z0-9]{8,}+(?![\w+/-])",
        starts_word=True,
        example="AP6{W30}",
    ),
    Rule(
        name="Artifactory reference token",
        kind="package_token",
        pattern="cmVmd[A-Za-z0-9]{59}",
        starts_word=True,
        example="cmVmd{W59}",
    ),
    Rule(
        name="crates.io token",
        kind="package_token",
        pattern=r"cio[A-Za-z0-9]{32}(?!\w)",
        starts_word=True,
        example="cio{W32}",
    ),
    Rule(
        name="NuGet key",
        kind="package_token",
        pattern=r"oy2[a-z0-9]{43}(?!\w)",
        starts_word=True,
        example="oy2{LD43}",
    ),
    Rule(
        name="Slack token",
        kind="slack_token",
        pattern=r"xox[a-z](?:\.xox[a-z])?-[\w%-]{6,}",
        example="xoxb-{D12}-{D13}-{W24}",
    ),
    Rule(
        name="Slack app token",
        kind="slack_token",
        pattern=r"xapp-\d-[\w-]{10,}",
        example="xapp-1-A{U10}-{D13}-{H64}",
    ),
    Rule(
        name="Slack webhook",
        kind="webhook",
        pattern=r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/]{10,}",
        example="hooks.slack.com/services/T0{U8}/B0{W30}",
    ),
    Rule(
        name="Discord webhook",
        kind="webhook",
        pattern=r"discord(?:app)?\.com/api/webhooks/\d{10,}+/[\w-]{40,}",
        example="discord.com/api/webhooks/{D19}/{R68}",
    ),
    Rule(
        name="Teams webhook",
        kind="webhook",
        pattern=r"webhook\.office\.com/webhookb2/[\w@/-]{36,}",
        example="webhook.office.com/webhookb2/{UUID}/IncomingWebhook/{H32}",
    ),
    Rule(
        name="IFTTT webhook",
        kind="webhook",
        pattern=r"maker\.ifttt\.com/trigger/[\w/-]{24,}",
        example="maker.ifttt.com/trigger/e/with/key/{W22}",
    ),
    Rule(
        name="Discord bot token with M",
        kind="chat_token",
        pattern=r"M[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        starts_word=True,
        example="M{W23}.{W6}.{W27}",
    ),
    Rule(
        name="Discord bot token with N",
        kind="chat_token",
        pattern=r"N[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        starts_word=True,
        example="N{W25}.{W6}.{W38}",
    ),
    Rule(
        name="Discord bot token with O",
        kind="chat_token",
        pattern=r"O[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        starts_word=True,
        example="O{W23}.{W6}.{W27}",
    ),
    Rule(
        name="Twitch OAuth token",
        kind="chat_token",
        pattern=r"oauth:[a-z0-9]{30}(?!\w)",
        example="oauth:{LD30}",
    ),
    Rule(
        name="Stripe secret key",
        kind="stripe_key",
        pattern="sk_(?:live|test)_[A-Za-z0-9]{16,}",
        example="sk_live_{W24}",
    ),
    Rule(
        name="Stripe restricted key",
        kind="stripe_key",
        pattern="rk_(?:live|test)_[A-Za-z0-9]{16,}",
        example="rk_test_{W24}",
    ),
    Rule(
        name="Stripe webhook secret",
        kind="stripe_key",
        pattern="whsec_[A-Za-z0-9+/=]{24,}",
        example="whsec_{W32}",
    ),
    Rule(
        name="heedful key",
        kind="heedful_key",
        pattern="heedful_[0-9a-f]{12}_[0-9a-f]{64}",
        example="heedful_{H12}_{H64}",
    ),
    Rule(
        name="Square token",
        kind="payment_key",
        pattern=r"sq0[a-z]{3}-[\w\\-]{22,}",
        example="sq0csp-{R43}",
    ),
    Rule(
        name="Square access token",
        kind="payment_key",
        pattern=r"EAAA[\w-]{60,}",
        example="EAAA{R60}",
    ),
    Rule(
        name="Facebook access token",
        kind="payment_key",
        pattern="EAA[BCGIMNO][A-Za-z0-9]{60,}",
        starts_word=True,
        example="EAAB{W90}",
    ),
    Rule(
        name="Shopify token",
        kind="payment_key",
        pattern="shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}",
        example="shpat_{H32}",
    ),
    Rule(
        name="Razorpay key",
        kind="payment_key",
        pattern="rzp_(?:live|test)_[A-Za-z0-9]{14,}",
        example="rzp_live_{W14}",
    ),
    Rule(
        name="Plaid token",
        kind="payment_key",
        pattern="access-(?:sandbox|development|production)-[0-9a-f-]{36}",
        example="access-sandbox-{UUID}",
    ),
    Rule(
        name="Braintree token",
        kind="payment_key",
        pattern=r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[0-9a-f]{32}",
        example="access_token$production${LD16}${H32}",
    ),
    Rule(
        name="Twilio account",
        kind="phone_key",
        pattern="AC[a-z0-9]{32}",
        example="AC{H32}",
    ),
    Rule(
        name="Twilio key",
        kind="phone_key",
        pattern="SK[a-z0-9]{32}",
        example="SK{H32}",
    ),
    Rule(
        name="SendGrid key",
        kind="mail_key",
        pattern=r"SG\.[\w-]{16,}+\.[\w-]{16,}",
        example="SG.{R22}.{R43}",
    ),
    Rule(
        name="Mailgun key",
        kind="mail_key",
        pattern="key-[0-9a-f]{32}",
        example="key-{H32}",
    ),
    Rule(
        name="Brevo key",
        kind="mail_key",
        pattern=r"x(?:key|smtp)sib-[0-9a-f]{64}[\w-]*",
        example="xkeysib-{H64}-{W16}",
    ),
    Rule(
        name="Resend key",
        kind="mail_key",
        pattern=r"re_[A-Za-z0-9]{8}_(?=\w{0,40}\d)[A-Za-z0-9]{20,}",
        starts_word=True,
        example="re_{W8}_{W24}",
    ),
    Rule(
        name="OpenAI or Anthropic key",
        kind="model_key",
        pattern=r"sk-(?:(?=[A-Za-z_-]{0,60}\d)[\w-]{20,}|[A-Za-z0-9]{20,})",
        starts_word=True,
        example="sk-proj-{R120}",
    ),
    Rule(
        name="Groq key",
        kind="model_key",
        pattern="gsk_[A-Za-z0-9]{40,}",
        example="gsk_{W52}",
    ),
    Rule(
        name="xAI key",
        kind="model_key",
        pattern="xai-[A-Za-z0-9]{60,}",
        example="xai-{W80}",
    ),
    Rule(
        name="Perplexity key",
        kind="model_key",
        pattern="pplx-[A-Za-z0-9]{40,}",
        example="pplx-{W48}",
    ),
    Rule(
        name="Replicate token",
        kind="model_key",
        pattern="r8_[A-Za-z0-9]{36,}",
        example="r8_{W37}",
    ),
    Rule(
        name="NVIDIA key",
        kind="model_key",
        pattern=r"nvapi-[\w-]{60,}",
        example="nvapi-{R64}",
    ),
    Rule(
        name="LangSmith key",
        kind="model_key",
        pattern=r"lsv2_[a-z]{2}_\w{32,}",
        example="lsv2_pt_{H32}_{H10}",
    ),
    Rule(
        name="Pinecone key",
        kind="model_key",
        pattern=r"pcsk_\w{40,}",
        example="pcsk_{W60}",
    ),
    Rule(
        name="Tavily key",
        kind="model_key",
        pattern=r"tvly-[\w-]{24,}",
        example="tvly-dev-{W32}",
    ),
    Rule(
        name="Cerebras key",
        kind="model_key",
        pattern="csk-[a-z0-9]{40,}",
        starts_word=True,
        example="csk-{LD48}",
    ),
    Rule(
        name="ElevenLabs key",
        kind="model_key",
        pattern=r"sk_[0-9a-f]{48}(?!\w)",
        starts_word=True,
        example="sk_{H48}",
    ),
    Rule(
        name="Fireworks key",
        kind="model_key",
        pattern="fw_[A-Za-z0-9]{22,}",
        starts_word=True,
        example="fw_{W24}",
    ),
    Rule(
        name="Firecrawl key",
        kind="model_key",
        pattern=r"fc-[0-9a-f]{32}(?!\w)",
        starts_word=True,
        example="fc-{H32}",
    ),
    Rule(
        name="E2B key",
        kind="model_key",
        pattern="e2b_[0-9a-f]{40}",
        example="e2b_{H40}",
    ),
    Rule(
        name="Jina key",
        kind="model_key",
        pattern=r"jina_\w{50,}",
        example="jina_{W60}",
    ),
    Rule(
        name="Together key",
        kind="model_key",
        pattern=r"tgp_v1_[\w-]{40,}",
        example="tgp_v1_{R43}",
    ),
    Rule(
        name="Weights & Biases key",
        kind="model_key",
        pattern=r"wandb_v1_\w{40,}",
        example="wandb_v1_{W60}",
    ),
    Rule(
        name="Voyage key",
        kind="model_key",
        pattern=r"pa-(?=[\w-]{0,40}\d)[\w-]{43}(?![\w-])",
        starts_word=True,
        example="pa-{R43}",
    ),
    Rule(
        name="Hugging Face token",
        kind="hub_token",
        pattern="hf_[A-Za-z0-9]{30,}",
        example="hf_{W34}",
    ),
    Rule(
        name="Hugging Face organisation token",
        kind="hub_token",
        pattern="api_org_[A-Za-z0-9]{30,}",
        example="api_org_{W34}",
    ),
    Rule(
        name="age secret key",
        kind="private_key",
        pattern="AGE-SECRET-KEY-1[A-Z0-9]{58}",
        example="AGE-SECRET-KEY-1{UD58}",
    ),
    Rule(
        name="OpenSSH private key in Base64",
        kind="private_key",
        pattern=r"b3BlbnNzaC1rZXktdjE[\w+/=]{40,}",
        example="b3BlbnNzaC1rZXktdjE{W80}",
    ),
    Rule(
        name="Bitcoin extended private key",
        kind="private_key",
        pattern="xprv[A-Za-z0-9]{100,}",
        example="xprv{W107}",
    ),
    Rule(
        name="Bitcoin private key with K",
        kind="private_key",
        pattern=r"K[A-Za-z0-9]{51}(?!\w)",
        starts_word=True,
        example="K{W51}",
    ),
    Rule(
        name="Bitcoin private key with L",
        kind="private_key",
        pattern=r"L[A-Za-z0-9]{51}(?!\w)",
        starts_word=True,
        example="L{W51}",
    ),
    Rule(
        name="Bitcoin private key, uncompressed",
        kind="private_key",
        pattern=r"5[HJK][A-Za-z0-9]{49}(?!\w)",
        starts_word=True,
        example="5H{W49}",
    ),
    Rule(
        name="PEM private key in Base64",
        kind="private_key",
        pattern=(
            r"LS0tLS1CRUdJTiB(?:SU0EgU|QUklWQ|FQyBQUk|EU0EgU|PUEVOU1NI|FTkNSW"
            r"|QR1AgUFJJ)[\w+/=]{40,}"
        ),
        example="LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVk{W60}",
    ),
    Rule(
        name="PostgreSQL MD5 password",
        kind="password_hash",
        pattern=r"md5[0-9a-f]{32}(?!\w)",
        starts_word=True,
        example="md5{H32}",
    ),
    Rule(
        name="LDAP password hash",
        kind="password_hash",
        pattern=r"\{(?i:S?SHA\d{0,3})\}[\w+/]{16,}+={0,2}",
        example="{SSHA}{W32}",
    ),
    Rule(
        name="Windows password hash",
        kind="password_hash",
        pattern="aad3b435b51404eeaad3b435b51404ee:[0-9a-f]{32}",
        example="aad3b435b51404eeaad3b435b51404ee:{H32}",
    ),
    Rule(
        name="crypt or Argon2 password hash",
        kind="password_hash",
        pattern=(
            r"\$(?:[1-9yPHS]|2[abxy]|14|gy|s2|apr1|argon2[id]{1,2}"
            r"|pbkdf2[\w-]{0,9}|scrypt|md5)\$(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})"
            r"[\w./$=,:+-]++"
        ),
        example="$6${W8}${W86}",
    ),
    Rule(
        name="Django password hash",
        kind="password_hash",
        pattern=(
            r"\$\d{1,8}\$[\w./+=]{1,64}\$(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})"
            r"[\w./$=,:+-]++"
        ),
        example="pbkdf2_sha256$600000${W22}${W43}=",
    ),
    Rule(
        name="SCRAM password hash",
        kind="password_hash",
        pattern=r"\$\d{4,8}:(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})[\w./$=,:+-]++",
        example="SCRAM-SHA-256$4096:{W24}${W43}=:{W43}=",
    ),
    Rule(
        name="Werkzeug password hash",
        kind="password_hash",
        pattern=r"\$[\w./+]{6,64}\$[0-9a-f]{64,}",
        example="scrypt:32768:8:1${W16}${H128}",
    ),
    Rule(
        name="JSON Web Token",
        kind="jwt",
        # The header ends where another token may begin. So no character is read for
        # more than one of many beginnings in a row.
        pattern=(
            r"eyJ(?>(?:(?!(?<=[_-])eyJ[\w-]{5})[\w-]){5,})={0,2}"
            r"\.[\w=-]{2,}+(?:\.[\w.+/=-]*+)?"
        ),
        starts_word=True,
        example="{JWT}.{R43}",
    ),
    Rule(
        name="signature of a signed Azure URL",
        kind="signature",
        pattern=r"sig=[\w%+/-]{40,}+={0,2}",
        example="sig={W43}%3D",
    ),
    Rule(
        name="signature of a signed AWS or Google URL",
        kind="signature",
        pattern="X-(?:Amz|Goog)-Signature=[0-9a-f]{64,}",
        example="X-Amz-Signature={H64}",
    ),
    Rule(
        name="signature of a signed CloudFront URL",
        kind="signature",
        pattern=r"Signature=[\w~%+/-]{40,}+={0,2}",
        example="Signature={R60}",
    ),
    Rule(
        name="OAuth code, first parameter",
        kind="signature",
        pattern=r"\?code=(?=[\w/%.-]{0,60}\d[\w/%.-]{0,60}[A-Z\d])[\w/%.-]{20,}",
        example="?code={W40}",
    ),
    Rule(
        name="OAuth code, later parameter",
        kind="signature",
        pattern=r"&code=(?=[\w/%.-]{0,60}\d[\w/%.-]{0,60}[A-Z\d])[\w/%.-]{20,}",
        example="&code={W40}",
    ),
)


# Personal data, which lessons of sessions leave out; `mask_personal` applies these.

_DATE = r"""
    (?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)\b
      |[A-Z][a-z]{2,8}[ ]\d{1,2},?[ ]\d{4}|\d{1,2}\.?[ ][A-Z][a-z]{2,8}[ ]\d{4})
"""
_BIRTH = r"""
    (?:[dD][oO][bB]|[dD]ate[ _]?[oO]f[ _]?[bB]irth|[bB]irth_?[dD](?:ate|ay)
      |[bB]orn(?:[ ]on)?|geb\.|geboren(?:[ ]am)?)
"""
# The end of a key in JSON and the quote before its value, also within another text.
_KEY_END = r"""\\?"\s{0,3}:\s{0,3}\\?" """
_VALUE = r"""[^"\\]{1,120}(?=\\?")"""
# A word of a name: an upper-case letter and others, in any script.
_NAME_WORD = r"""[A-Z\x80-\U0010ffff][^\s,;:()<>"'\d]{1,30}"""
PERSONAL_RULES = (
    Rule(
        name="mail address",
        kind="mail",
        pattern=r"""
            ()(?<![\w.+@/:-])(?<!ssh[ ])(?<!scp[ ])(?!git@|noreply@|no-reply@)
            [\w.+-]{1,64}@(?!example\.)(?:[\w-]{1,63}\.){1,5}
            (?!(?:service|socket|timer|target|local|js|ts|py|md)\b)[A-Za-z]{2,24}\b(?![:/])
        """,
        keywords=("@",),
        example="write to mia.li@post.test",
    ),
    Rule(
        name="telephone number",
        kind="phone",
        pattern=r"""
            ()(?<![\w.+/-])
            (?:
                \+[1-9]\d{0,2}[ ().-]{0,2}(?:\d[ ().-]{0,2}){7,11}\d
              | \(\d{3}\)[ ]?\d{3}[ .-]\d{4}
              | \d{3}(?:-\d{3}-|[.]\d{3}[.])\d{4}
            )(?![\w-])
        """,
        example="call +49 30 1234 5678",
    ),
    Rule(
        name="date of birth",
        kind="birth",
        pattern=rf"""(\b{_BIRTH}\\?["']?[ ]{{0,2}}[:=]?[ ]{{0,2}}\\?["']?){_DATE}""",
        keywords=("dob", "birth", "born", "geb"),
        example="Mia Li, born 1990-04-05",
    ),
    Rule(
        name="name before a date of birth",
        kind="name",
        pattern=rf"""
            ()(?<!\w)(?:{_NAME_WORD}[ ]){{1,3}}{_NAME_WORD}
            (?=[ ]?[,(]?[ ]?{_BIRTH}[ :=]{{0,3}}\[redacted)
        """,
        keywords=("dob", "birth", "born", "geb"),
        example="Mia Li (born [redacted: birth])",
    ),
    Rule(
        name="name of a person in JSON",
        kind="name",
        pattern=rf"""
            (\\?"(?:first|last|full|given|family|middle|sur|maiden|passenger|customer
            |patient|guest|contact|cardholder)_?[nN]ame{_KEY_END}){_VALUE}
        """,
        keywords=("name",),
        example='{{"first_name": "Mia"}}',
    ),
    Rule(
        name="part of a postal address in JSON",
        kind="address",
        pattern=rf"""
            (\\?"(?:address_?(?:line_?)?\d|street(?:_?address)?|(?:zip|postal)_?(?:code)?
            |(?:home|billing|shipping|postal|mailing)_?address){_KEY_END}){_VALUE}
        """,
        keywords=("address", "street", "zip", "postal"),
        example='{{"street": "Lime Road 7"}}',
    ),
    Rule(
        name="postal address",
        kind="address",
        pattern=r"""
            ()(?<![\w.:/-])
            (?:
                \d{1,5}[ ](?:[NSEW]\.?[ ])?(?:[A-Z][a-z'-]{1,20}[ ]){1,3}
                (?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court
                |Terrace|Highway)\b\.?
                (?:,?[ ](?:Apt|Suite|Unit|No)\.?[ ]?\w{1,6})?
                (?:,[ ][A-Z][a-z]{1,20}(?:[ ][A-Z][a-z]{1,20})?)?
                (?:,?[ ][A-Z]{2}[ ]\d{5})?
              | [A-Z][^\W\d]{1,30}(?:[\x80-\u017f][a-z]{0,20})?
                (?:stra\u00dfe|strasse|str\.|weg|gasse|allee|platz)[ ]\d{1,4}[a-z]?\b
                (?:,[ ]\d{5}[ ][A-Z][^\s,]{1,30})?
            )
        """,
        example="12 Lime Road, Springfield",
    ),
)
