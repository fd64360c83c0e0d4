#!/bin/sh
# heedful answers this event; `heedful hook uninstall` removes the script.
# The exit code is 0, the time is short, and what is printed is whole, because the agent
# blocks a call otherwise.
if command -v timeout > /dev/null 2>&1; then
    answer=$$(timeout $seconds $line 2> /dev/null) || exit 0
else
    answer=$$($line 2> /dev/null) || exit 0
fi
printf '%s' "$$answer"
exit 0
