#!/bin/sh
# Makes the one virtual environment, .venv, and installs the locked requirements and heedful into it.
# Ends at once when nothing changed. What was interrupted is taken up again: the stamp comes last.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

stamp=.venv/heedful.stamp
# The path is part of the stamp, because scripts and the editable install contain it.
want="$(cat requirements.lock packages/*/pyproject.toml scripts/setup.sh scripts/install.py | cksum) $PWD"

ready() { [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; }

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# $PYTHON if given, else the first that is new enough: python3, the versioned names, pyenv's.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" && command -v "$PYTHON" && return
        echo "heedful: PYTHON=$PYTHON is not a Python of at least 3.11 with venv" >&2
        return 1
    fi
    for name in python3 python3.13 python3.12 python3.11 python3.14 python \
        "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.*/bin/python3; do
        usable "$name" && command -v "$name" && return
    done
    echo "heedful: needs Python 3.11 or newer with its venv module; python3 here is:" \
        "$(python3 --version 2>&1 || true). Give one with: make PYTHON=/path/to/python3.11" >&2
    return 1
}

# Created again if it was made in another folder, by a Python that is gone, or only in part: without
# a stamp it is unknown which packages are complete. (pip's cache makes this quick.)
make_environment() {
    case "$(cat "$stamp" 2>/dev/null)" in
    *" $PWD") usable .venv/bin/python && return ;;
    esac
    rm -rf .venv/bin .venv/lib .venv/lib64 .venv/include .venv/share .venv/pyvenv.cfg
    "$python" -m venv .venv
}

ready && exit 0
python=$(find_python)
# Its lock says that an environment was begun here.
if [ -e .venv/pyvenv.cfg ] && [ ! -e .venv/heedful.lock ]; then
    echo "heedful: .venv is an environment that somebody else made, and make would replace it:" \
        "move it away, for example with: mv .venv my-venv" >&2
    exit 1
fi
mkdir -p .venv
# The lock belongs to the open file, which this shell keeps after Python has ended; it is released
# when the shell ends, however it ends. (The program flock is missing on some systems.)
exec 9>>.venv/heedful.lock
"$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
ready && exit 0
make_environment
rm -f "$stamp"
echo "heedful: installing the locked requirements into .venv (once; half a minute, or what the download takes)" >&2
.venv/bin/python scripts/install.py
printf '%s\n' "$want" >"$stamp"
