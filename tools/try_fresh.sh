#!/bin/sh
# Tries the README's commands on bare Debian systems, where a missing package cannot hide.
#
#   try_fresh.sh SUITE...             `make train` and `make test`, for example: bookworm trixie
#   try_fresh.sh --train SUITE...     `make train` alone
#   try_fresh.sh --wheel SUITE...     install the wheel from dist/ without a compiler, and train
#   try_fresh.sh --run 'COMMAND' SUITE...    COMMAND in the clone
#
# Each suite: debootstrap's minimal system with python3, git and make, a clone of HEAD in it, an empty
# HOME. A line per command says how it ended. The exit code is 1 if a command failed, 2 if no bare system
# could be made. The settings of apt and pip, certificates and host names
# of this machine go along. Needs root and debootstrap; the systems are made under $TMPDIR and removed,
# the downloaded base of each suite is kept in ~/.cache/torchbeast.
set -eu

train='make train ARGS="--total_steps 20000"'
commands="$train
make test"
wheel='apt-get update -qq
apt-get install -y -qq --no-install-recommends python3-venv
python3 -m venv /home/user/venv
/home/user/venv/bin/pip install -q $(grep ^torch== requirements.txt)
/home/user/venv/bin/pip install -q --pre --find-links ../dist torchbeast-popart
cd / && /home/user/venv/bin/polybeast --preset small --total_steps 20000'
case ${1:-} in
    --train) commands=$train; shift ;;
    --wheel) commands=$wheel; shift ;;
    --run) commands=$2; shift 2 ;;
esac
[ $# -gt 0 ] || { echo "usage: try_fresh.sh [--train | --wheel | --run COMMAND] SUITE..." >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "error: a bare system is made by root" >&2; exit 2; }
command -v debootstrap >/dev/null || {
    echo "error: debootstrap is missing: apt-get install debootstrap" >&2
    exit 2
}

project=$(git rev-parse --show-toplevel)
work=$(mktemp -d)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/torchbeast
mounted=
making=

leave() {
    code=$?
    # The place of a mount that failed is among them.
    for place in $mounted; do umount -l "$place" 2>/dev/null || true; done
    rm -rf --one-file-system "$work"
    [ -z "$making" ] || [ $code -eq 130 ] || { echo "error: no bare $making could be made here" >&2; exit 2; }
    exit $code
}
trap leave EXIT
trap 'exit 130' INT TERM

mount_into() { # mount_into PLACE MOUNT_ARGUMENTS...
    place=$1
    shift
    mkdir -p "$place"
    mounted="$place $mounted"
    mount "$@" "$place"
    # Else its end would unmount this machine's own /dev/pts, where mounts are shared.
    mount --make-rslave "$place"
}

# The directories of packages that pip's settings name, if any.
local_indexes() {
    python3 -m pip config list 2>/dev/null | grep -o "/[^ ']*" | sed 's#^///*#/#; s#/simple$##' |
        while read -r path; do [ ! -d "$path" ] || echo "$path"; done | sort -u
}

# make_root DIR SUITE: a minimal system that reaches what this one reaches.
make_root() {
    mkdir -p "$cache"
    base=$cache/debian-$2-minbase.tar
    if [ ! -s "$base" ]; then
        debootstrap --variant=minbase --include=python3,make,git,ca-certificates "$2" "$1" \
            >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log" >&2; return 1; }
        tar -C "$1" -cf "$base.$$" . && mv "$base.$$" "$base"
    else
        mkdir -p "$1" && tar -C "$1" -xf "$base"
    fi
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    cp /etc/apt/apt.conf.d/* "$1/etc/apt/apt.conf.d/" 2>/dev/null || true
    rm -rf "$1/etc/ssl/certs"
    mkdir -p "$1/etc/ssl/certs" "$1/home/user/.config/pip"
    cp -rL /etc/ssl/certs/. "$1/etc/ssl/certs/"
    cp /etc/pip.conf "$1/etc/" 2>/dev/null || true
    cp ~/.config/pip/pip.conf "$1/home/user/.config/pip/" 2>/dev/null || true
    mount_into "$1/proc" -t proc proc
    mount_into "$1/dev" --rbind /dev
    local_indexes >"$work/indexes"
    while read -r path; do mount_into "$1$path" --bind "$path"; done <"$work/indexes"
    git clone -q "$project" "$1/home/user/project"
    [ ! -d "$project/dist" ] || cp -r "$project/dist" "$1/home/user/"
}

failed=0
for suite in "$@"; do
    root=$work/$suite
    making=$suite
    make_root "$root" "$suite"
    making=
    echo "$commands" >"$work/commands"
    while read -r command; do
        printf 'cd /home/user/project\n%s\n' "$command" >"$root/home/user/command.sh"
        started=$(date +%s)
        code=0
        env -i HOME=/home/user PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            LANG=C.UTF-8 TERM=dumb SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
            chroot "$root" sh -e /home/user/command.sh >"$work/output" 2>&1 </dev/null || code=$?
        [ $code -eq 0 ] || { failed=1; tail -n 300 "$work/output" >&2; }
        echo "$suite: $command: exit code $code after $(($(date +%s) - started)) s"
    done <"$work/commands"
    for place in $mounted; do umount -l "$place"; done
    mounted=
    rm -rf --one-file-system "$root"
done
exit $failed
