"""Signs that a text attacks who reads it: what adds which weight to a screening score, and why.

Words are read as classes ("ignore", "olvida" and "忽略" are one), so that a text is a string of
classes and a sign a short pattern over it. Where the payload is code, the pattern is over the
characters. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from heedful.sanitize import TOKEN

# Three weights are all there are. One sign that is ENOUGH reaches 0.5 alone, of those that are HALF
# it takes two, and a HINT only tips the balance.
ENOUGH, HALF, HINT = 0.6, 0.3, 0.2


@dataclass(frozen=True, slots=True)
class Sign:
    """What adds its weight to the score, once, where any of its patterns is found.

    In `said` a letter or digit is a class of `WORDS`, `_` another word, `,` the end of a clause and
    `/` the begin and the end of a sentence; `~4` stands for at most 4 words within one. `code` is
    looked for in lower case, `shape` in the text as it is. White space parts patterns. Each begins
    with what is rare, and none looks at the same characters from an unbounded number of places, so
    that time is linear.
    """

    weight: float
    why: str
    said: str = ""
    code: str = ""
    shape: str = ""


# One letter for words that do the same in such a text, in the languages that public sets of attacks
# are written in. A word has one class. Imperatives only: "ignores" tells what a program does.
WORDS = {
    # To set aside; to leave out; what came earlier; all of it; what was told.
    "F": "ignore ignoring disregard disregarding forget overlook neglect discard abandon unlearn"
    " ignoriere ignorieren vergiss vergessen vergesst missachte missachten verwirf olvida olvide"
    " olviden olvidar olvidad ignora ignorar ignorad ignoren oublie oubliez oublier ignorez"
    " ignorer dimentica dimenticare dimenticate ignorare ignorate esqueça esqueca esquece vergeet"
    " negeer zapomnij zignoruj ignoruj zaboravi zanemari игнорируй игнорируйте игнорировать забудь"
    " забудьте unut lupakan abaikan αγνόησε αγνοήστε ξέχασε अनदेखी अनदेखा تجاهل انس 忽略 无视 無視"
    " 忘记 忘れ 무시 잊어",
    "k": "skip skipping bypass bypassing disable disabling suppress silence circumvent evade drop"
    " without regardless avoids despite contrary abweichend entgegen trotz malgré",
    "e": "previous prior above preceding earlier before foregoing former initial initially"
    " original starting beginning hidden initialization vorherige vorherigen vorigen bisherigen"
    " obige obigen vorangehenden vorangegangenen davor zuvor vorher oben ursprünglichen anteriores"
    " anterior antes previas previos iniciales précédentes précédents dessus avant initiales"
    " precedenti precedente prima iniziali iniciais eerdere vorige bovenstaande poprzednie"
    " предыдущие предыдущих прежние προηγούμενες önceki sebelumnya पिछले पिछली السابقة 之前 以前"
    " 以上 上述 先前 前の 上記 이전",
    "a": "all everything anything any every alle alles allen sämtliche todo todas todos toda tout"
    " toutes tous tutto tutti tutte tudo wszystkie wszystko все всё όλες tüm semua sve सभी جميع كل"
    " 所有 一切 全部 すべて 全て 모든",
    "t": "said told given gave know learned learnt discussed talked taught instructed received"
    " gesagt gesagte gesagten besprochen besprochenen weißt dije dicho digo dit detto disse",
    # Instructions; other things that rule a task; texts.
    "i": "instruction instructions directive directives prompt prompts guideline guidelines"
    " guardrail guardrails systemprompt instruktion instruktionen anweisung anweisungen"
    " instrucción instruccion instrucciones consignes istruzioni instruções instrucoes instructies"
    " instrukcje instrukcije инструкции инструкций указания οδηγίες talimatları instruksi निर्देश"
    " निर्देशों التعليمات تعليمات 指令 指示 命令 提示词 プロンプト 지시 명령 프롬프트",
    "o": "rule rules order orders command commands task tasks assignment assignments job context"
    " information constraints programming training conversation documents"
    " directions thoughts regeln befehle aufgabe aufgaben auftrag aufträge angaben informationen"
    " vorgaben ausführungen reglas órdenes tarea tareas règles ordres tâches regole ordini compiti"
    " regras ordens tarefas правила команды задания polecenia zadania",
    "X": "text texts message messages configuration chat texte texto testo",
    # You, your, me; is; who may be private, and what is.
    "u": "you du sie tu usted ustedes vous voi você voce jij ty вы ты आप",
    "y": "your ur dein deine deinen deinem deiner ihr ihre ihren ihrem su sus votre vos ton tes"
    " tuo tua tuoi tue seu sua seus suas jouw uw twoje twój твои твой ваши あなたの 你的 너의",
    "m": "me us my our mir uns mein meinen nos moi nous notre mon mio mia meu minha mij мне нам",
    "z": "is are re were s ist sind bist lautet es eres son est sont êtes è sei sono são",
    "b": "user users customer customers employee employees patient usuario benutzer nutzer kunde"
    " utente usuário utilisateur пользователь उपयोगकर्ता χρήστης 用户 ユーザー 사용자",
    "p": "email address city phone telephone adresse dirección téléphone indirizzo endereço",
    "B": "birth birthdate birthday initials residence salary balance ssn passport whereabouts saldo"
    " kontostand geburtstag बैलेंस",
    "s": "password passwords passphrase passcode passwort kennwort contraseña contrasena senha"
    " parola passe hasło пароль şifre wachtwoord κωδικός पासवर्ड secret secrets credential"
    " credentials apikey 密码 密碼 パスワード 비밀번호",
    "l": "live lives living wohnt lebt vive mora habite abita живет живёт ζει रहता 살고",
    # To ask; to tell; to show; to answer; must; just; as; with.
    "q": "what which where welche welches wo cuál cual qué dónde donde quel quelle où qual"
    " quale onde dove какой где πού που क्या कहां 什么 何 哪里 どこ 어디 무엇",
    "W": "was",  # German, or of "be"
    "w": "tell give share reveal confirm disclose provide sag sage sagen gib geben verrate"
    " verraten nenne benötige brauche dime dame revela comparte dis dites donne donnez dimmi dammi"
    " diga dê compartilhe revele скажи скажите дай powiedz podaj zeg geef söyle 告诉 必要 教え 필요"
    " 알려",
    "d": "write show print repeat output display recite dump translate encode spell summarize"
    " recall summarise reproduce zeige zeig zeigen drucke drucken wiederhole wiederholen übersetze"
    " muestra mostrar imprime repite traduce montre montrez affiche affichez répète répétez"
    " imprimez mostra stampa ripeti mostre imprima repita покажи выведи повтори pokaż wypisz 显示"
    " 打印 输出 重复 翻译 出力 繰り返 보여 출력 반복",
    "x": "say answer respond reply state antworte antworten di decir responde responda répondez"
    " rispondi 回答 说 言っ 대답 말해",
    "4": "must have need musst müssen debes tienes devez dois devi deve",
    "O": "just only simply nur solo seulement sólo solamente",
    "2": "am m bin soy sou",
    "@": "as als como comme come",
    "5": "with mit con avec",
    # Another role; a model; who gives orders; a mode; what is new; well done.
    "R": "act acting pretend roleplay roleplaying impersonate simulate imagine behave immerse"
    " fungiere fungieren agieren auftreten verhalte stell actúa actua finge imagina agis imaginez"
    " fingi comportati aja finja 扮演 假装 ふり",
    "C": "character characters role roles persona rolle figur personaje personnage rôle",
    "7": "play adopt break breaking stay remain",
    "f": "ethics ethical ethically morals morality unethical immoral illegal censorship uncensored"
    " unfiltered restrictions restrained unrestricted limitations confines abide bound",
    "L": "ai ki chatgpt gpt llm chatbot",
    "v": "system admin administrator developer maintainer creator god gott root superuser sudo"
    " boss maintenance debug president presidente police entwickler chef",
    "h": "mode modus modo override",
    "n": "now new next another additional instead following jetzt nun neue neuen neuer nächste"
    " nächsten folgende weitere weiteren stattdessen ahora nueva nuevo nuevas maintenant nouvelle"
    " nouvelles adesso ora nuova agora nova теперь",
    "Y": "done enough good great excellent congratulations fantastic super superbly bravo gemacht"
    " gut erledigt genügt großartig perfecto",
    # A check; to mark; well done; to send; elsewhere.
    "c": "validation validations validate check checks verification review reviews approval"
    " approvals audit audits test tests gate gates safeguard safeguards safety security consent"
    " permission permissions warning warnings lint compliance authentication",
    "j": "mark marks marking stamp stamps flag flags declare",
    "G": "passed complete completed final success successful approved clean ok ready green valid"
    " verified resolved sanitized",
    "S": "upload send post forward pipe transmit exfiltrate",
    "E": "external remote webhook",
    # No; and; what else stands in any sentence.
    "!": "never don dont not no avoid nicht kein keine nie nunca jamais non 不要 ne",
    "&": "and or but then und oder y et",
    "1": "a an the ein eine der die das un una el la le il",
    "P": "for of to in on at from für von zu de para pour per",
    "3": "that this it",
}
# Scripts written without spaces between words.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_SENDS = r"-(?:f\s\S{1,40}=|[td]\s|-data|-form|-upload)"

SIGNS = (
    Sign(
        ENOUGH,
        "tells its reader to set earlier instructions aside",
        "F~5[aeyt]~4[iofX] Fy?i F~2[ae]+[/,&xdwPt] F~2a~5[te] F~3u_{0,2}t F~4&_?x k~4[ye]~3[io]"
        " k~2u~3t [ea]~4[io]~8F",
    ),
    Sign(
        ENOUGH,
        "asks for the instructions that its reader was given",
        "[dwqx]~6[yev]~3i d~6i~3e d~5iX d~3[Xio]u~3t d1?eX d1?Xe qzu_?te qzu!~4w [mv]iz, yei",
    ),
    Sign(HALF, "speaks of what was said before it", "d~5[aX]~3e d~5e~2X v[iX] qzu_?t yi ae[io]"),
    Sign(
        ENOUGH,
        "asks for a secret",
        "[wdq4]~6y~2s wm~4s u~3w~3s[^_] qz~4s[^_] d~5s[/,P] y_?s_?w /Wz~4s[^_] s_{0,3}[qw] y_?s~6w",
    ),
    Sign(
        ENOUGH,
        "asks for what is private to a person",
        "wm~6B wm_z~2p [wq4]~6b~3[pB] ud~3b~3[pB] q~3b~3l q~2l~2b b~6q~6l",
    ),
    Sign(
        ENOUGH, "gives its reader another role", "u~3R~2@ [/,n]R@ R~3,?uz u@~12R R_?u uzn[1@] nzu"
    ),
    Sign(HALF, "tells its reader who it is", "/n?uz[1_n] nuz"),
    Sign(HALF, "holds its reader to a role", "yC 7~3C"),
    Sign(HALF, "frees its reader from what binds it", "[!k]~4f f~4[!k]"),
    Sign(HALF, "speaks to a model by name", "@1L /_L, u,?L"),
    Sign(HALF, "sets a new task", "n~2[oi] PnP eu~3o i~2n [/,]n[dx]"),
    Sign(HALF, "says that the task is done", "/~4[YG]~8/~8n"),
    Sign(
        HALF,
        "dictates the answer",
        "O_?[xd] x~2O [/,&][xw]_?[3@m] ux~2a x~2a~35 x5 u_?4_?x !x",
    ),
    Sign(HALF, "claims authority", "[vc]~2h y_?v 2~3v @yv"),
    Sign(
        HINT,
        "shouts",  # and is no heading
        shape=r"[A-Z](?<![A-Za-z].)[A-Z]++(?:[\x20,]++[A-Z]{2,}+){3}\b[^\n]{0,40}?[a-z]",
    ),
    Sign(HALF, "poses as a turn of the chat", shape=f"(?i:{TOKEN.pattern})"),
    Sign(
        HALF,
        "hides characters",
        shape=r"[\u200b-\u200f\u2060-\u2064\ufeff](?<=[A-Za-z].)[\u200b-\u200f\u2060-\u2064\ufeff]*+"
        r"[A-Za-z] [\u202a\u202b\u202d\u202e] [\u0400-\u04ff](?:[A-Za-z]|(?<=[A-Za-z].))"
        r" [\U000e0020-\U000e007f](?<![\U0001f3f4\U000e0020-\U000e007f].)",
    ),
    Sign(HALF, "advises to skip a check", "k~3c"),
    Sign(HALF, "marks as done what may not be", "j~4[GY]"),
    Sign(
        HALF,
        "writes a good result down by hand",
        code=r"(?:status|state|check|valid[a-z]{0,9})['\"\]]{0,3}\s?=\s?['\"](?:ok|approved|passed"
        r"|skipped|ready|complete|done)",
    ),
    Sign(
        HALF,
        "switches a safeguard off",
        code=r"(?:skip|bypass|disable|force)_[a-z_]{1,40}\s?=\s?(?:1|true|yes|on)\b --no-verify"
        r" --insecure --skip-[a-z] verify\s?=\s?false lambda[^:l\n]{0,20}:\s?true",
    ),
    Sign(HALF, "advises to send data elsewhere", "S~6E"),
    Sign(
        HALF,
        "sends data to an address",
        code=rf"curl\b(?>(?:[^\n|c\s]|c(?!url)|\s(?!{_SENDS}))*)\s{_SENDS}"
        r" !\[[^\]\[\n]{0,80}\]\(https?://[^)\s?!]{1,200}\?[^)\s!]{0,99}=[{<\[$]",
    ),
    Sign(
        ENOUGH,
        "runs what it downloads",
        code=r"(?:curl|wget|iwr|irm)\b(?>(?:[^\n|cwi]|c(?!url)|w(?!get)|i(?!wr|rm))*)\|\s?(?:sudo\s)?"
        r"(?:(?:ba|z|da|k)?sh|python[\d.]*|perl|ruby|node|php|iex)\b",
    ),
)
# Such code may be what a lesson is about: it takes a second sign, be it that there is nothing else.
PAYLOADS = (
    Sign(
        HALF,
        "carries code that runs commands",
        code=r"\$\([a-z]+\s[^)$\n]{1,200}\) rm\s-[a-z]*[rf] mkfifo\b /dev/tcp/"
        r" system[\s(]{1,2}[\"'] kernel\.exec __import__\s?\( eval\s?\( exec(?<![.\w]exec)\s?\("
        r" __mro__ __subclasses__ __globals__ __builtins__ \.system\( \.popen\("
        r" shell\s?=\s?true getruntime child_process \$\{jndi: <%= @\{\["
        r" \{\{(?=[^{}\n]{0,60}\}\})[^}]*[*(]",
    ),
    Sign(
        HALF,
        "carries an SQL injection",
        code=r"union\s{1,9}(?:all\s{1,9})?select\b (?:or|and|when|if)\s?\(?(\d)\s?=\s?\1"
        r" drop\s{1,9}table\b ;\s?shutdown\b ;\s?insert\s{1,9}into ;\s?--\s '\s?--\s xp_cmdshell"
        r" @@version '\s?\)?;?\s?(?:insert\s{1,9}into|union)\b",
    ),
    Sign(
        HALF,
        "carries a script",
        code=r"<script\b javascript: on(?:error|load|click|mouse[a-z]{1,9})\s?= data:text/html"
        r" document\.cookie alert\s?\(",
    ),
)
BARE = Sign(HALF, "is nothing but code")
ENCODED = Sign(HALF, "hides words in an encoding")
