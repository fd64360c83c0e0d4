"""The menu of the pages."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MenuPage:
    """A page in the menu, for keys with the right `may`; "" is for every key.

    `below` are the addresses of what it lists, if they are not below its own.
    """

    name: str
    address: str
    may: str = ""
    below: tuple[str, ...] = ()

    def holds(self, path: str) -> bool:
        """Return whether a page is this one or below it."""
        if self.address == "/":
            return path in ("/", "/home")
        places = (self.address, *self.below)
        return any(f"{path}/".startswith(f"{place}/") for place in places)


MENU = (
    MenuPage(name="Home", address="/"),
    MenuPage(name="Loops", address="/loops", below=("/send",)),
    MenuPage(name="Runs and traces", address="/work", below=("/runs", "/traces")),
    MenuPage(name="Lessons", address="/lessons"),
    MenuPage(name="Inbox", address="/inbox", may="read"),
    MenuPage(name="Proof", address="/proof"),
    MenuPage(name="Keys", address="/keys", may="admin"),
)
