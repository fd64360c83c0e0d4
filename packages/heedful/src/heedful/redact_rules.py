"""What is recognised as a secret: a table of rules.

A rule has a pattern in the syntax of `re`; patterns are compiled with VERBOSE and
ASCII, so blanks in them mean nothing and `#` begins a comment. A match of the pattern
is a secret. If the pattern has a group, only what follows the end of its last group is
the secret, and a match in which no group took part is not a secret. Examples are
written as in docs/secrets.md: `{W20}` stands for 20 random letters and digits. Each
alternative of a pattern has a text that needs it: see `test_secret_witnesses.py`.

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
from collections.abc import Callable, Mapping
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

PLACE_RULES = (
    Rule(
        name="private key in a file",
        kind="private_key",
        pattern=r"""
            ()
            (?:
                -{4,5}[ ]?BEGIN[ ][\w ]{0,30}
                (?:PRIVATE|Static)[ ](?i:key)[\w ]{0,9}-{4,5}
              | PuTTY-User-Key-File-\d
            )
            (?>(?:[^-]++|-(?!---|MAC))*)
            (?:-{4,5}[ ]?END[ ][\w ]{1,40}-{4,5})?
        """,
        keywords=("private", "static key"),
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
    ),
    Rule(
        name="authorization header",
        kind="authorization",
        # After any scheme but a bearer's; `auth` is in the settings of Docker and npm.
        pattern=rf"""
            (
                (?:[uU](?i:thorization)|_auth|"auth)
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
    ),
    Rule(
        name="password of a user in SQL",
        kind="password",
        pattern=rf"""
            (
                [pPiI]
                (?i:
                    (?<=p)assword(?:\s{{1,9}}|\()'
                  | (?<!revision\s[iI])(?<=i)dentified\s{{1,9}}
                    (?:with\s{{1,9}}\S{{1,40}}\s{{1,9}})?by\s{{1,9}}
                    (?:password\s{{1,9}})?(?:['"]|(?=[\w$#]{{1,40}};))
                )
            )
            {NOT_A_REFERENCE}
            (?:(?<=')[^'\n]{{6,64}}+(?=';)|[^\s"';)]{{4,}}+(?!['"],))
        """,
        keywords=("identified", "password"),
    ),
    Rule(
        name="password that a shell pipes to a command",
        kind="password",
        pattern=r"""
            (echo\s{1,3}(?:-\w\s{1,3})?["']?)
            (?!\$)[^\s"'|]{4,80}
            (?=["']?\s{0,3}\|[^|\n]{0,80}?(?:sudo\s-S|chpasswd|-stdin))
        """,
        keywords=("echo ",),
    ),
    Rule(
        name="pass phrase or mnemonic",
        kind="password",
        # Four or more plain words, in quotes or up to the end of the line, that are
        # no sentence.
        pattern=r"""
            (
                [pPmM](?i:(?<=m)nemonic|(?<=[sdy _-]p)hrase|(?<=p)assword)
                (?:\\{0,3}["'])?\s{0,9}[:=]\s{0,9}\\{0,3}["']?
            )
            (?=
                [a-zA-Z]{3,12}(?>(?:[ -][a-zA-Z]{3,12}){3,24})
                (?:\\{0,3}["']|\s{0,9}(?m:$))
            )
            (?!(?:\w{1,12}[ -]){0,24}(?i:the|for|with|your|must|not)\b)
            [a-zA-Z -]++
        """,
        keywords=("mnemonic", "phrase", "password"),
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
    ),
    Rule(
        name="Telegram bot token",
        kind="chat_token",
        pattern=r"(:(?<=\d{8}:))[\w-]{35}(?![\w-])",
        keywords=(":",),
    ),
    Rule(
        name="line of a PostgreSQL password file",
        kind="password",
        pattern=r"(:5432:[\w*-]{1,64}+:[\w*-]{1,64}+:)\S++(?m:$)",
        keywords=(":5432:",),
    ),
    Rule(
        name="Mailchimp key",
        kind="mail_key",
        pattern=r"()(?<![0-9a-z])[0-9a-z]{32,}+-us\d{1,2}",
        keywords=("-us",),
    ),
    Rule(
        name="Azure client secret",
        kind="cloud_key",
        pattern=r"()[\w.~]{3}\dQ~[\w.~-]{31,34}",
        keywords=("q~",),
    ),
    Rule(
        name="Terraform Cloud token",
        kind="cloud_key",
        pattern=r"()[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}",
        keywords=(".atlasv1.",),
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
        [aA](?<=[pP].)(?i:ssw|ssphrase|ss{_after_owner(4)})
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
    (?:\s\[[\w*]{{1,24}}\](?=:))?
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
            (?:\d[ ])?(?!-|\w{1,64}=\w)(?=[^\s"']{6,}+\s{0,9}(?m:$))
        )
    )
    (?>
        (?:
            \[?\{\s{0,20}+\\{0,3}["'](?i:\w{0,7}values?)
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
        (?=\\{{0,3}}["']|[^"'\n]*+(?m:$))
      | (?:(?<==["'])|(?<==\s["']))[^"'\n]{{8,}}+(?=["'])
    )
"""
_BARE_VALUE = rf"""
    {NOT_A_REFERENCE}
    ()
    (?:
        {_UNQUOTED_SECRET}
      | (?:(?<=\w=)|(?<=\w>)(?=[\w-]{{1,64}}</))
        (?=[A-Za-z_-]{{8,64}}+(?![^\s&;"'<>`\\]))
        (?![A-Za-z_-]{{0,60}}(?i:secret|key|token|pass|cred))
        [A-Za-z_-]++
      | [a-z]{{20,64}}+(?![\w.([])
    )
"""
# A name also takes a long value that is not a secret; otherwise a value that repeats
# itself would be tried again from each of its positions.
_LONG_VALUE = rf"(?:{_UNQUOTED_CHARACTER}{{64,}}+)?"
# The word for a password in the languages of the users who do not write the English
# one. "Passwort" and "contraseña" are found as names above. "clave" is a key of any
# sort, so it needs "de acceso".
FOREIGN_NAME_WORDS = (
    "mot de passe",
    "mot_de_passe",
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
FOREIGN_NAME_PATTERN = rf"""
    (?<![A-Za-z0-9])(?iu:{"|".join(FOREIGN_NAME_WORDS).replace(" ", "[ ]")})
    [A-Za-z0-9_-]{{0,24}}+
    {_NAME_CLOSE}
    (?:
        \s{{0,3}}+[:：=]{{1,2}}+>?\s{{0,20}}+
      | \s{{1,3}}+(?:est|ist|es|é)[ ]
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
                    (?:passw|secret|token|api_?key)\w{{0,10}}+
                  | (?<=s)ecret-?str(?:ing)?\b
                )
                (?:(?<=[A-Z])["'],\s?|\(|\s{{1,9}})\\{{0,3}}["']
            )
            {NOT_A_REFERENCE}
            [^\s"'\\]{{6,}}+(?=\\{{0,3}}["'])
        """,
    ),
    Rule(
        name="line of a .netrc file",
        kind="password",
        pattern=r"""
            (machine\s\S++\s{1,9}login\s\S++\s{1,9}password\s)
            (?![{$\[])\S{4,}
        """,
        keywords=("login",),
    ),
    Rule(
        name="text compared with a secret",
        kind="assigned",
        pattern=r"""
            (["'])
            [^\s"']{6,}+
            (?=
                ["']\s{0,20}[!=]={1,2}\s{0,20}[\w.]{0,30}?
                (?i:passw|secret|api_?key)
            )
        """,
        keywords=("=",),
    ),
    Rule(
        name="option of a command for a secret",
        kind="password",
        pattern=rf"""
            (
                -(?=[a-zA-Z])(?<!\w-)(?:[a-zA-Z]{{2,20}}+-){{0,3}}
                (?>(?i:
                    (?:store|key|require)?pass\w{{0,6}}
                  | pw
                  | (?:api|access|secret)[_-]?key
                  | secret
                  | token
                ))
                (?:\s{{1,3}}+["']?|["'],\s{{0,20}}["'])
            )
            (?!-|id=)
            {NOT_A_REFERENCE}
            (?:
                (?<=\s["'])[^"'\n]{{4,}}+(?=["'])
              | {_UNQUOTED_SECRET}
              | (?!requires)[a-z]{{8,40}}+(?=\s{{1,3}}-)
            )
        """,
        keywords=("-",),
    ),
    Rule(
        name="value of a name of a secret",
        kind="assigned",
        pattern=rf"""
            {SECRET_NAME_PATTERN}
            (?:{_QUOTED_VALUE}|{_BARE_VALUE})?{_LONG_VALUE}
        """,
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
                )
                (?=[\\"'\]\s:=!])
                {_NAME_CLOSE}
                (?:(?:\s\d)?\s{{0,20}}+[:=!]{{1,3}}+>?\s{{0,20}}+|[ \t]{{1,20}}+)
                (?:\\{{0,3}}["'`])?
            )
            (?=[\w+/~-]{{20}})(?=[\w+/~-]{{0,60}}\d)
            (?:
                [0-9a-fA-F]{{32,}}
              | (?=[\w+/~-]{{0,60}}[a-z])(?=[\w+/~-]{{0,60}}[A-Z])
                [\w+/~-]{{20,}}+={{0,2}}
            )
            (?>(?:[\w+/~%=-]|\.\w)*)
        """,
    ),
)

# Names that are not English, and PINs: texts need none of SECRET_NAME_WORDS for them.
PIN_PATTERN = r"PIN\b|(?i:code[ _-]pin|pin[ _-]?(?:code|number))"
OTHER_NAME_RULES = (
    Rule(
        name="value of the word for a password in another language",
        kind="assigned",
        # Chinese, Japanese and Korean have no blanks: what follows the name may be a
        # sentence with a number in it, as in "密码：请输入6到16位字符".
        pattern=rf"""
            {FOREIGN_NAME_PATTERN}
            (?:{_QUOTED_VALUE}|(?!\S{{0,5}}[\u3040-\u9fff\uac00-\ud7af]){_BARE_VALUE})?
            {_LONG_VALUE}
        """,
        keywords=FOREIGN_NAME_WORDS,
    ),
    Rule(
        name="personal identification number",
        kind="assigned",
        # "PIN: 4821", "pin code is 4821", "code pin = 123456", also with a colon of
        # full width; not "pin: 1500", which may be one of a board.
        pattern=rf"""
            (?<![\w-])(?:{PIN_PATTERN})
            \\{{0,3}}["'*]{{0,2}}
            (?:\s{{0,3}}[:：=]{{1,2}}>?\s{{0,3}}|[ ]is[ ])\\{{0,3}}["'`]?
            ()
            \d{{4,8}}(?![\w.,:/-]?\w)
        """,
        keywords=("pin",),
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
        rf"""-(?:[auU]|-auth|-[a-z-]{{0,6}}user)(?:{blank})?"""
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
COMMAND_RULES = (
    Rule(
        name="password of a command in a shell",
        kind="password",
        pattern=_command_pattern(
            r"\s",
            # A command ends with its line, unless a backslash continues it.
            gap=r"(?>(?:(?<=\\)\r?\n|[^\S\n]){1,9})",
            word=r"""(?:"[^"\n]{0,400}+"|'[^'\n]{0,400}+'|(?>[^\s;|&"']+))+""",
            quote=r"""["']?""",
            secret=r"""(?:(?<=["'])[^"'\n]{4,}+(?=["'])|[^\s"'`;|&()<>]{4,}+)""",
        ),
        keywords=(" -",),
        trigger=r"[ ]-(?:[aPpUuwy]|-[apu])",
    ),
    Rule(
        name="password of a command in a list",
        kind="password",
        pattern=_command_pattern(
            f"{_LIST_QUOTE}{_LIST_COMMA}{_LIST_QUOTE}",
            gap=_LIST_GAP,
            word=f"(?>{_LIST_TEXT}*)",
            quote="",
            secret=rf"""(?!-)(?=[^\s"'][^"'\n]{{3}})(?>{_LIST_TEXT}+)""",
        ),
        keywords=("-",),
        trigger=r"""["'],\s{0,20}\\{0,3}["']-[aApPUuwy-]""",
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
        secret=r"(?!-)(?=[^\s\x1f]{4})[^\x1f]++",
    ),
)

# Random text in quotes, in a text with a long word.


def _is_random(text: str) -> bool:
    """Return whether a text has letters of both cases, digits and a high entropy."""
    # No digest and no sequence.
    is_mixed = r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])(?!sha\d|.*(?i:abcdef))"
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
)

# Tokens in the form that their issuers give them.

# Every token has such a part; few ordinary words have one, and only these are searched.
TOKEN_PART_PATTERN = r"(?=[a-z_.=~-]{0,40}+[A-Z\d])[\w.=~+-]{16,}+"
# Tokens that begin with fixed characters, by kind: the name and the pattern of each.
# Before a token that begins with `\b` stands no letter or digit.
_TOKENS: Mapping[str, Mapping[str, str]] = {
    "aws_key": {
        "AWS access key": "A(?:[BKS]IA|CCA|3T[A-Z0-9])[A-Z0-9]{16}",
        "AWS Bedrock key": r"ABSK[\w+/]{80,}+={0,2}",
        "AWS Marketplace (MWS) key": r"amzn\.mws\.[0-9a-f-]{36}",
        "AWS AppSync key": r"da2-[a-z0-9]{26}(?!\w)",
    },
    "google_key": {
        "Google API key": r"AIza[\w-]{35}",
        "Google OAuth client secret": r"GOCSPX-[\w-]{28}",
        "Google OAuth access token": r"ya29\.[\w-]{20,}",
        "Google OAuth refresh token": r"1//0[\w-]{28,}",
        "Google OAuth code": r"4/0A[\w-]{30,}",
    },
    "cloud_key": {
        "DigitalOcean token": "do[opr]_v1_[0-9a-f]{64}",
        "Databricks token": "dapi[0-9a-f]{32}",
        "Alibaba Cloud access key": "LTAI[A-Za-z0-9]{20}",
        "Scaleway access key": r"\bSCW[A-Z0-9]{17}(?!\w)",
        "Doppler token": r"dp\.[a-z]{2,5}\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}",
        "Vault token": r"hv[sbr]\.[\w-]{20,}",
        "PlanetScale token": r"pscale_[a-z]{2,5}_[\w.=-]{32,}",
        "Supabase token": "sbp_[0-9a-f]{40}",
        "Supabase secret key": r"sb_secret_[\w-]{20,}",
        "Pulumi token": "pul-[0-9a-f]{40}",
        "SoftLayer key in an address": (
            r"api\.softlayer\.com/soap/v3(?:\.1)?/[A-Za-z0-9]{64}"
        ),
        "Cloudflare Origin CA key": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}",
        "Fly token": r"fm[12][ar]?_[\w+/]{40,}+={0,2}",
        "Fly OAuth token": r"fo1_[\w-]{40,}",
        "Tailscale key": r"tskey-[a-z]{3,9}-[\w-]{20,}",
        "Netlify token": r"nfp_\w{36,}",
        "Neon key": "napi_[a-z0-9]{40,}",
        "Render key": "rnd_[A-Za-z0-9]{28,}",
        "Heroku key": r"HRKU-[\w-]{36,}",
        "OpenShift token": r"sha256~[\w-]{43}",
    },
    "github_token": {
        "GitHub token": r"gh[oprsu]_\w{36,}",
        "GitHub fine-grained token": r"github_pat_\w{22,}",
    },
    "gitlab_token": {
        "GitLab token": r"gl(?:[a-z]{1,4}t|rtr|oas)-[\w.-]{20,}",
        "GitLab runner registration token": r"GR1348941[\w-]{20,}",
    },
    "tool_token": {
        "Bitbucket app password": "ATBB[A-Za-z0-9]{28,}",
        "Bitbucket access token": r"ATCTT3[\w=-]{60,}",
        "Trello token": "ATTA[0-9a-f]{64}",
        "CircleCI token": r"CCIPAT_\w{40,}",
        "Buildkite token": "bk[a-z]{2}_[a-z0-9]{32,}",
        "Sonar token": "sq[apu]_[0-9a-f]{40}",
        "Linear key": "lin_[a-z]{3,5}_[A-Za-z0-9]{32,}",
        "Notion token": "ntn_[A-Za-z0-9]{40,}",
        "Notion integration secret": r"secret_[A-Za-z0-9]{43}(?!\w)",
        "Atlassian API token": r"ATATT3[\w=-]{60,}",
        "Postman key": "PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        "New Relic key": r"NR[AIJR][AIKQS]-[\w-]{19,}",
        "Grafana service account token": "glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}",
        "Grafana Cloud token": r"glc_eyJ[\w+/-]{30,}+={0,2}",
        "Sentry token": r"sntry[su]_[\w+/=-]{40,}",
        "Figma token": r"fig[do]_[\w-]{40}",
        "Airtable token": r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
        "HubSpot token": r"pat-[a-z]{2}\d-[0-9a-f-]{36}",
        "ClickUp token": r"pk_\d{5,}+_[A-Z0-9]{32}",
        "Contentful token": r"CFPAT-[\w-]{43}",
        "Dropbox token": r"sl\.(?:u\.)?[\w-]{130,}",
        "Asana token": r"1/\d{10,}+:[0-9a-f]{32}",
        "Asana token of an app": r"2/\d{10,20}/\d{10,20}:[0-9a-f]{32}",
        "1Password service account token": r"ops_eyJ[\w+/-]{80,}+={0,2}",
        "PostHog key": "ph[cx]_[A-Za-z0-9]{40,}",
        "Logfire token": r"pylf_v\d_[a-z]{2}_\w{40,}",
        "LaunchDarkly key": "sdk-[0-9a-f]{8}-[0-9a-f-]{27}",
        "Okta token": r"\b00(?=[\w-]{0,39}[a-z])(?=[\w-]{0,39}[A-Z])[\w-]{40}(?![\w-])",
    },
    "package_token": {
        "npm token": r"npm_\w{36}",
        "PyPI token": r"pypi-AgE[\w-]{50,}",
        "RubyGems key": "rubygems_[0-9a-f]{48}",
        "Docker Hub token": r"dckr_[op]at_[\w-]{27,}",
        "Artifactory key": r"\bAKC[A-Za-z0-9]{10,}+(?![\w+/-])",
        "Artifactory password": r"\bAP[0-9A-F][A-Za-z0-9]{8,}+(?![\w+/-])",
        "Artifactory reference token": r"\bcmVmd[A-Za-z0-9]{59}",
        "crates.io token": r"\bcio[A-Za-z0-9]{32}(?!\w)",
        "NuGet key": r"\boy2[a-z0-9]{43}(?!\w)",
    },
    "slack_token": {
        "Slack token": r"xox[a-z](?:\.xox[a-z])?-[\w%-]{6,}",
        "Slack app token": r"xapp-\d-[\w-]{10,}",
    },
    "webhook": {
        "Slack webhook": r"hooks\.slack\.com/[a-z]{8,9}/[\w/]{10,}",
        "Discord webhook": r"discord(?:app)?\.com/api/webhooks/\d{10,}+/[\w-]{40,}",
        "Teams webhook": r"webhook\.office\.com/webhookb2/[\w@/-]{36,}",
        "IFTTT webhook": r"maker\.ifttt\.com/trigger/[\w/-]{24,}",
    },
    "chat_token": {
        "Discord bot token with M": r"\bM[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        "Discord bot token with N": r"\bN[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        "Discord bot token with O": r"\bO[\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
        "Twitch OAuth token": r"oauth:[a-z0-9]{30}(?!\w)",
    },
    "stripe_key": {
        "Stripe secret key": "sk_(?:live|test)_[A-Za-z0-9]{16,}",
        "Stripe restricted key": "rk_(?:live|test)_[A-Za-z0-9]{16,}",
        "Stripe webhook secret": "whsec_[A-Za-z0-9+/=]{24,}",
    },
    "heedful_key": {
        "heedful key": "heedful_[0-9a-f]{12}_[0-9a-f]{64}",
    },
    "payment_key": {
        "Square token": r"sq0[a-z]{3}-[\w\\-]{22,}",
        "Square access token": r"EAAA[\w-]{60,}",
        "Facebook access token": r"\bEAA[BCGIMNO][A-Za-z0-9]{60,}",
        "Shopify token": "shp[a-z]{2}_[a-fA-F0-9]{32}",
        "Razorpay key": "rzp_[a-z]{4}_[A-Za-z0-9]{14,}",
        "Plaid token": "access-[a-z]{7,11}-[0-9a-f-]{36}",
        "Braintree token": r"access_token\$[a-z]{7,10}\$[a-z0-9]{16}\$[0-9a-f]{32}",
    },
    "phone_key": {
        "Twilio account": "AC[a-z0-9]{32}",
        "Twilio key": "SK[a-z0-9]{32}",
    },
    "mail_key": {
        "SendGrid key": r"SG\.[\w-]{16,}+\.[\w-]{16,}",
        "Mailgun key": "key-[0-9a-f]{32}",
        "Brevo key": r"x[a-z]{3,4}sib-[0-9a-f]{64}[\w-]*",
        "Resend key": r"\bre_[A-Za-z0-9]{8}_(?=\w{0,40}\d)[A-Za-z0-9]{20,}",
    },
    "model_key": {
        "OpenAI or Anthropic key": r"\bsk-(?=[A-Za-z_-]{0,60}\d)[\w-]{20,}",
        "Groq key": "gsk_[A-Za-z0-9]{40,}",
        "xAI key": "xai-[A-Za-z0-9]{60,}",
        "Perplexity key": "pplx-[A-Za-z0-9]{40,}",
        "Replicate token": "r8_[A-Za-z0-9]{36,}",
        "NVIDIA key": r"nvapi-[\w-]{60,}",
        "LangSmith key": r"lsv2_[a-z]{2}_\w{32,}",
        "Pinecone key": r"pcsk_\w{40,}",
        "Tavily key": r"tvly-[\w-]{24,}",
        "Cerebras key": r"\bcsk-[a-z0-9]{40,}",
        "ElevenLabs key": r"\bsk_[0-9a-f]{48}(?!\w)",
        "Fireworks key": r"\bfw_[A-Za-z0-9]{22,}",
        "Firecrawl key": r"\bfc-[0-9a-f]{32}(?!\w)",
        "E2B key": "e2b_[0-9a-f]{40}",
        "Jina key": r"jina_\w{50,}",
        "Together key": r"tgp_v1_[\w-]{40,}",
        "Weights & Biases key": r"wandb_v1_\w{40,}",
        "Voyage key": r"\bpa-(?=[\w-]{0,40}\d)[\w-]{43}(?![\w-])",
    },
    "hub_token": {
        "Hugging Face token": "hf_[A-Za-z0-9]{30,}",
        "Hugging Face organisation token": "api_org_[A-Za-z0-9]{30,}",
    },
    "private_key": {
        "age secret key": "AGE-SECRET-KEY-1[A-Z0-9]{58}",
        "OpenSSH private key in Base64": r"b3BlbnNzaC1rZXktdjE[\w+/=]{40,}",
        "Bitcoin extended private key": "xprv[A-Za-z0-9]{100,}",
        "Bitcoin private key with K": r"\bK[A-Za-z0-9]{51}(?!\w)",
        "Bitcoin private key with L": r"\bL[A-Za-z0-9]{51}(?!\w)",
        "Bitcoin private key, uncompressed": r"\b5[HJK][A-Za-z0-9]{49}(?!\w)",
        # Not a certificate, and not a public key.
        "PEM private key in Base64": r"LS0tLS1CRUdJTiB(?!DRVJU|QVUJM)[\w+/=]{40,}",
    },
    "password_hash": {
        "PostgreSQL MD5 password": r"\bmd5[0-9a-f]{32}(?!\w)",
        "LDAP password hash": r"\{(?i:S?SHA\d{0,3})\}[\w+/]{16,}+={0,2}",
        "Windows password hash": "aad3b435b51404eeaad3b435b51404ee:[0-9a-f]{32}",
        # A dollar sign stands on both sides of its method, as of Braintree's
        # "production".
        "crypt, Argon2 or Django password hash": (
            r"\$(?![a-z]{7})[\w-]{1,14}\$(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})"
            r"[\w./$=,:+-]++"
        ),
        "SCRAM password hash": (
            r"\$\d{4,8}:(?=[\w./$=,:+-]{0,80}?[\w./+=]{20})[\w./$=,:+-]++"
        ),
        "Werkzeug password hash": r"\$[\w./+]{6,64}\$[0-9a-f]{64,}",
    },
    "jwt": {
        # The header ends where another token may begin. So no character is read for
        # more than one of many beginnings in a row.
        "JSON Web Token": (
            r"\beyJ(?>(?:(?!(?<=[_-])eyJ[\w-]{5})[\w-]){5,})={0,2}"
            r"\.[\w=-]{2,}+(?:\.[\w.+/=-]*+)?"
        ),
    },
    "signature": {
        "signature of a signed Azure URL": r"sig=[\w%+/-]{40,}+={0,2}",
        "signature of a signed AWS, CloudFront or Google URL": (
            r"Signature=[\w~%+/-]{40,}+={0,2}"
        ),
        "OAuth code, first parameter": (
            r"\?code=(?=[\w/%.-]{0,60}\d[\w/%.-]{0,60}[A-Z\d])[\w/%.-]{20,}"
        ),
        "OAuth code, later parameter": (
            r"&code=(?=[\w/%.-]{0,60}\d[\w/%.-]{0,60}[A-Z\d])[\w/%.-]{20,}"
        ),
    },
}
TOKEN_RULES = tuple(
    Rule(
        name=name,
        kind=kind,
        pattern=pattern.removeprefix(r"\b"),
        starts_word=pattern.startswith(r"\b"),
    )
    for kind, patterns in _TOKENS.items()
    for name, pattern in patterns.items()
)


# Personal data, which lessons of sessions leave out; `mask_personal` applies these.

_DATE = r"""
    (?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}\b
      |[A-Z][a-z]{2,8}[ ]\d{1,2},?[ ]\d{4}|\d{1,2}\.?[ ][A-Z][a-z]{2,8}[ ]\d{4})
"""
_BIRTH_WORDS = ("dob", "birth", "born")
_BIRTH = r"(?i:dob|date[ _]?of[ _]?birth|birth_?da\w{1,2}|born(?:[ ]on)?)"
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
            ()(?<![\w.+@/:-])(?<!ssh[ ])(?<!scp[ ])(?!git@|no-?reply@)
            [\w.+-]{1,64}@(?!example\.)(?:[\w-]{1,63}\.){1,5}
            (?!service\b)[A-Za-z]{2,24}\b(?![:/])
        """,
        keywords=("@",),
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
    ),
    Rule(
        name="date of birth",
        kind="birth",
        pattern=rf"""(\b{_BIRTH}\\?["']?[ ]{{0,2}}[:=]?[ ]{{0,2}}\\?["']?){_DATE}""",
        keywords=_BIRTH_WORDS,
    ),
    Rule(
        name="name before a date of birth",
        kind="name",
        pattern=rf"""
            ()(?<!\w)(?:{_NAME_WORD}[ ]){{1,3}}{_NAME_WORD}
            (?=[ ]?[,(]?[ ]?{_BIRTH}[ :=]{{0,3}}\[redacted)
        """,
        keywords=_BIRTH_WORDS,
    ),
    Rule(
        name="name of a person in JSON",
        kind="name",
        pattern=rf"""
            (\\?"(?:first|last|full|given|family|middle|sur|customer|patient|contact
            |cardholder)_?[nN]ame{_KEY_END}){_VALUE}
        """,
        keywords=("name",),
    ),
    Rule(
        name="part of a postal address in JSON",
        kind="address",
        pattern=rf"""
            (\\?"(?:address_?(?:line_?)?\d|street\w{{0,8}}|(?:zip|postal)\w{{0,5}}
            |(?:home|billing|shipping|mailing)_?address){_KEY_END}){_VALUE}
        """,
        keywords=("address", "street", "zip", "postal"),
    ),
    Rule(
        name="postal address",
        kind="address",
        pattern=r"""
            ()(?<![\w.:/-])
            (?:
                \d{1,5}[ ](?:[NSEW]\.?[ ])?(?:[A-Z][a-z'-]{1,20}[ ]){1,3}
                (?:St(?:reet)?|Ave(?:nue)?|Road|Rd|Lane|Ln|Dr(?:ive)?|Blvd|Court|Highway)
                \b\.?
                (?:,?[ ][A-Z][a-z]{2,4}\.?[ ]?\d{1,6})?
                (?:,[ ][A-Z][a-z]{1,20}(?:[ ][A-Z][a-z]{1,20})?)?
                (?:,?[ ][A-Z]{2}[ ]\d{5})?
              | [A-Z][^\W\d]{1,30}(?:[\x80-\u017f][a-z]{0,20})?
                (?:stra(?:\u00df|ss)e|str\.|weg|platz)[ ]\d{1,4}[a-z]?\b
                (?:,[ ]\d{5}[ ][A-Z][^\s,]{1,30})?
            )
        """,
    ),
)
