#!/bin/sh
# heedful answers this event; `heedful hook uninstall` removes the script.
# The exit code is 0 and the time is short, because the agent blocks a call otherwise.
if command -v timeout > /dev/null 2>&1; then
    timeout $seconds $line 2> /dev/null
else
    $line 2> /dev/null
fi
exit 0
