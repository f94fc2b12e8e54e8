#!/bin/sh
# Makes the certificates of a run on several machines.
#
#   make_certificates.sh DIRECTORY NAME...
#
# NAME: the host names by which the learner reaches the environment servers, and the name by which hosts
# that join reach the learner. DIRECTORY gets root.pem, cert.pem and key.pem, which all hosts need
# (--tls_dir), and root.key, which no host needs: keep it to
# make further certificates, or delete it. They are valid for a year.
set -eu

[ $# -ge 2 ] || { echo "usage: make_certificates.sh DIRECTORY NAME..." >&2; exit 2; }
directory=$1
shift
names=$(printf ',DNS:%s' "$@")

umask 077
mkdir -p "$directory"
cd "$directory"
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
if [ ! -e root.key ]; then
    openssl req -x509 $key -keyout root.key -out root.pem -days 365 -subj "/CN=TorchBeast root" \
        -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
fi
openssl req $key -keyout key.pem -out request.pem -subj "/CN=$1" 2>/dev/null
# RFC 5280 wants the key's identifiers, and Python insists on them from 3.13 on.
cat >extensions <<EOF
subjectAltName=${names#,}
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
basicConstraints=critical,CA:FALSE
EOF
openssl x509 -req -in request.pem -CA root.pem -CAkey root.key -CAcreateserial -out cert.pem -days 365 \
    -extfile extensions 2>/dev/null
rm -f request.pem extensions root.srl
