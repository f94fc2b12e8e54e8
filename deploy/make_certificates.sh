#!/bin/sh
# Makes the certificates of a run on several machines.
#
#   make_certificates.sh DIRECTORY NAME...
#
# NAME: the host names by which the learner reaches the environment servers. DIRECTORY gets root.pem,
# cert.pem and key.pem, which all hosts need (--tls_dir), and root.key, which no host needs: keep it to
# make further certificates, or delete it. cert.pem is valid for a year, root.pem for ten.
set -eu

[ $# -ge 2 ] || { echo "usage: make_certificates.sh DIRECTORY NAME..." >&2; exit 2; }
directory=$1
shift
command -v openssl >/dev/null || { echo "error: openssl is missing: install the package openssl" >&2; exit 1; }
names=
for name in "$@"; do
    case $name in
        *:* | [0-9]*.[0-9]*.[0-9]*.*[0-9]) names=$names,IP:$name ;;
        *) names=$names,DNS:$name ;;
    esac
done

umask 077
mkdir -p "$directory"
cd "$directory"
# What openssl says is of interest only if it fails.
quietly() {
    output=$("$@" 2>&1) || { echo "$output" >&2; exit 1; }
}
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
if [ ! -e root.key ] || [ ! -e root.pem ]; then
    quietly openssl req -x509 $key -keyout root.key -out root.pem -days 3650 -subj "/CN=TorchBeast root" \
        -addext "keyUsage=critical,keyCertSign,cRLSign"
fi
# Not a host's name, which may be longer than a common name.
quietly openssl req $key -keyout key.pem -out request.pem -subj "/CN=TorchBeast"
# RFC 5280 wants the key's identifiers, and Python insists on them from 3.13 on.
cat >extensions <<EOF
subjectAltName=${names#,}
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
basicConstraints=critical,CA:FALSE
EOF
quietly openssl x509 -req -in request.pem -CA root.pem -CAkey root.key -CAcreateserial -out cert.pem -days 365 \
    -extfile extensions
rm -f request.pem extensions root.srl
