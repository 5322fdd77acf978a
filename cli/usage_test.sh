#!/usr/bin/env bash
# Runs the binary like a user: help, wrong calls, exit codes, streams.
set -uo pipefail

atoll=$1
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/usage.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Ignore the caller's settings.
export HOME=$work
unset XDG_CONFIG_HOME ATOLL_PROFILE ATOLL_COORDINATOR ATOLL_FORMAT
unset ATOLL_PROXY HTTPS_PROXY https_proxy
failed=0

# expect CODE ARGUMENT...: runs the command; output is in $work/out and err.
expect() {
  local code=$1
  shift
  "$atoll" "$@" >"$work/out" 2>"$work/err" </dev/null
  local got=$?
  if [[ $got -ne $code ]]; then
    echo "FAILED: atoll $*: exit $got, not $code"
    cat "$work/out" "$work/err"
    failed=1
  fi
}

# has FILE TEXT: the last output holds TEXT.
has() {
  if ! grep -qF -- "$2" "$work/$1"; then
    echo "FAILED: no '$2' in $1:"
    cat "$work/$1"
    failed=1
  fi
}

empty() {
  if [[ -s $work/$1 ]]; then
    echo "FAILED: $1 is not empty:"
    cat "$work/$1"
    failed=1
  fi
}

# narrow FILE: the last output has at most 80 columns, but for a URL or a path.
narrow() {
  if grep -E '^.{81}' "$work/$1" | grep -vE '[^ ]{40}'; then
    echo "FAILED: more than 80 columns"
    failed=1
  fi
}

# Every command has help on stdout, with an example.
commands=(
  "run create" "run list" "run show" "run watch" "run pause" "run resume"
  "run cancel" "run delete" "run export" "run import" "run pin" "run restore"
  "checkpoint list" "checkpoint show" "checkpoint verify" "checkpoint export"
  "replay" "island list"
  "island remove" "island readmit" "round list" "metrics" "join" "enrol"
  "doctor" "plan" "local status" "local pause" "local resume" "local finish"
  "data tokenize" "data publish" "data allow" "dev up"
  "dev baseline" "dev report" "eval" "generate" "settings" "version"
)
for command in "${commands[@]}"; do
  # shellcheck disable=SC2086
  expect 0 $command --help
  has out "Example"
  empty err
  narrow out
done
expect 0 --help
narrow out
for command in "${commands[@]}"; do has out "${command%% *}"; done
expect 0 --version
has out "atoll "
# Help shows defaults.
expect 0 run import --help
has out "--patience TEXT=5m"
expect 0 --help
has out "--timeout TEXT=30s"

# Wrong calls: exit 2, the reason on stderr, nothing on stdout.
expect 2
empty out
expect 2 frobnicate
empty out
has err 'there is no command "atoll frobnicate"'
expect 2 run creat
has err 'there is no command "atoll run creat"'
has err "atoll run --help"
expect 2 run create
has err "atoll run create --help"
expect 2 run
expect 2 run show
has err "run"
expect 2 run delete
has err "run"
# A run of a mirror is named by flags that no other run takes.
expect 2 run restore file:///nowhere
has err "--run-id"
expect 2 run restore spring --run-id spring
has err "not the URL of a mirror"
expect 2 run list --no-such-flag
# Underscores are accepted, and errors spell flags with dashes.
# style-ok(flag): the alias.
expect 2 run list --no_such_flag
has err "--no-such-flag"
expect 2 join 127.0.0.1:1 --threads many
expect 2 join 127.0.0.1:1 --run x --processes 2
has err "--mesh"
expect 2 join 127.0.0.1:1 --up 5
has err "--up: '5' is not a bandwidth"
expect 2 join 127.0.0.1:1 --down 50kb/s
has err "--down 50kb/s is less than 100 kb/s"
expect 2 dev up laptop --dir "$work/dev" --down fast
has err "--down: 'fast' is not a bandwidth"
expect 2 dev up laptop --dir "$work/dev" --tls-dir "$work"
has err "--tls-dir: the programs of this command have no TLS"
# --device: CUDA_VISIBLE_DEVICES hides any GPU of the machine.
expect 2 join 127.0.0.1:1 --device gpu
has err '--device: "gpu" is not a device: use cpu, cuda or cuda:N'
CUDA_VISIBLE_DEVICES='' expect 10 join 127.0.0.1:1 --device cuda
has err "--device cuda:"
grep -qF -e "--config=cuda" -e "driver" "$work/err" || has err "what is missing"
has err "--device cpu"
CUDA_VISIBLE_DEVICES='' expect 10 dev up laptop --dir "$work/dev" \
  --device cuda:0 -o json
has out '"reason": "NO_DEVICE"'
CUDA_VISIBLE_DEVICES='' expect 10 dev baseline laptop --output "$work/alone" \
  --device cuda
expect 2 join 127.0.0.1:1 --optimizer-host --optimizer-dir "$work"
expect 2 run list --timeout soon
expect 2 run list --proxy socks5://me:hidden@p:1
has err '--proxy: the proxy "socks5://***@p:1" is not of the form'
expect 0 settings --proxy http://me:hidden@p:1
has out "http://***@p:1"
expect 2 version -o yaml
has err "table, json and jsonl"

# A plan needs no coordinator; its quantities have units.
plan=(plan --model 1B --tokens-per-second 80000)
expect 0 "${plan[@]}" --link 20Mb/s --rtt 40ms
has out "PRESET"
has out "Take eager"
empty err
expect 0 "${plan[@]}" --up 5MB/s --down 20Mb/s -o json
has out '"utilization"'
has out '"take": {'
expect 0 "${plan[@]}" --link 1Gb/s --tokens 20B -o json
has out '"token_count": 20000000000'
expect 2 "${plan[@]}" --link 1Gb/s --tokens lots
has err "--tokens"
expect 2 run create laptop --tokens 0
has err "--tokens"
expect 0 "${plan[@]}" --link 1Gb/s -o jsonl
has out '"preset":"sparseloco"'
expect 2 "${plan[@]}"
has err "--link"
expect 2 "${plan[@]}" --link 20
has err "--link: '20' is not a bandwidth"
expect 0 "${plan[@]}" --link 20Mb/s --tokens 20B
has out "20B IN"
has out "20B tokens take"
has out "Its cost: a little loss"
has out "each way it would compute 95 %"
expect 0 "${plan[@]}" --link 20Mb/s --local-data
has out "Take fedopt"
has out "Compared: only fedavg and fedopt"
expect 2 "${plan[@]}" --link 0Mb/s
has err "--link: '0Mb/s' is not a bandwidth"
expect 2 "${plan[@]}" --link 20Mb/s --rtt=-40ms
has err "--rtt: '-40ms' is not a duration"
expect 2 "${plan[@]}" --link 20Mb/s --inner-steps 0
has err "--inner-steps: must be above 0, not 0"
for model in 0 -1B; do
  expect 2 plan --model=$model --link 20Mb/s --tokens-per-second 80000
  has err "--model: '$model' is not a count"
done
expect 8 plan --model streming --link 20Mb/s --tokens-per-second 80000
has err "or a preset: async"
expect 2 plan --model 1B --link 20Mb/s --tokens-per-second nan
has err "--tokens-per-second: 'nan' is not a number"
expect 2 "${plan[@]}" --link 20Mbps
expect 2 "${plan[@]}" --link 20Mb/s --rtt 40
has err "--rtt: '40' is not a duration"
expect 2 "${plan[@]}" --link 20Mb/s --up-codec zip
has err "e3m0"
expect 2 "${plan[@]}" --link 20Mb/s --overlap 500
expect 2 "${plan[@]}" --link 20Mb/s --fragments 25
has err "--fragments: 25 fragments"
expect 2 plan --model 1X --tokens-per-second 1 --link 1Mb/s
expect 8 plan --model nothing --tokens-per-second 1 --link 1Mb/s

expect 2 plan --model 1B --link 1Mb/s
has err "--tokens-per-second is required"
# Memory and disk need no link and no speed.
expect 0 plan --model laptop --kubernetes --servers 3
has out "coordinator"
has out "measured"
has out "  replicas: 3"
has out "    kind: StatefulSet"
empty err
expect 0 plan --model 1.2B --kubernetes --islands 6 --down-codec bf16 -o json
has out '"image_bytes"'
has out '"values": "coordinator:'
expect 0 plan --model 1.2B --kubernetes -o jsonl
has out '"program":"island"'
expect 2 plan --model laptop --kubernetes --servers 0
has err "--servers"
# The coordinator's memory counts fragments, also instead of a run file's.
many=(--kubernetes --islands 1000 --servers 8)
expect 0 plan --model 100M --layers 24 "${many[@]}" --fragments 24
has out " 598Mi "
expect 0 plan --model laptop "${many[@]}" --fragments 4
has out " 330Mi "
expect 2 plan --model laptop "${many[@]}" --fragments 5
has err "--fragments: 5 fragments are not between 1 and the 4 layers"
expect 2 plan --model 100M "${many[@]}" --fragments 24
has err "--layers"
# It refuses what no coordinator accepts in a run.
for value in 257 99999999999999; do
  expect 2 plan --model 100M --layers 1000 --kubernetes --fragments $value
  has err "--fragments"
  has err "256"
done
expect 2 plan --model laptop --kubernetes --servers 257
has err "--servers"
expect 2 plan --model laptop --kubernetes --islands 1025
has err "--islands: must be at most 1024 in a run with fragment_count 1, not 1025"
has err "several runs"
expect 2 plan --model 100M --layers 256 --kubernetes --islands 129 --fragments 256
has err "at most 128"

# With -o json an error is an envelope on stdout, too.
expect 2 run show -o json
has out '"status": "error"'
has out '"exit_code": 2'
has out '"reason": "USAGE"'
has err "run"

# A machine that is enrolled nowhere checks itself.
expect 0 doctor -o json
has out '"id": "isa"'
has out '"forecast": {}'
has err "atoll doctor -"
expect 2 doctor 10.0.0.7:7400
has err "is not a join string"
expect 2 doctor --operator --run spring
expect 8 doctor --run spring
has err "not enrolled"

# version and settings need no coordinator.
expect 0 version -o json
has out '"schema_version": 1'
has out '"status": "ok"'
ATOLL_COORDINATOR=environment:1 expect 0 settings
has out "environment:1"
has out "ATOLL_COORDINATOR"
ATOLL_COORDINATOR=environment:1 expect 0 settings --coordinator flag:1 -o jsonl
has out '"value":"flag:1","source":"flag"'
mkdir -p "$work/.config/atoll"
echo 'coordinator = "profile:1"' >"$work/.config/atoll/profile.toml"
expect 0 settings
has out "profile:1"
echo 'coordinatr = "profile:1"' >"$work/.config/atoll/profile.toml"
expect 4 settings
has err "profile.toml:1: unknown setting 'coordinatr'; did you mean"
rm "$work/.config/atoll/profile.toml"

# Run files are checked before any network call.
printf 'preset = "laptop"\n[inner]\nlearning_rte = 1.0\n' >"$work/bad.toml"
expect 4 run create "$work/bad.toml"
has err "bad.toml:3: unknown key 'inner.learning_rte'; did you mean"
expect 8 run create "$work/none.toml"
expect 4 dev up "$work/bad.toml" --dir "$work/dev"

# A model that only its trainer knows.
printf '%s\n' '[model]' 'architecture = "external"' '[schedule]' \
  'inner_step_count = 2' 'round_count = 3' >"$work/own.toml"
expect 4 run create "$work/own.toml"
has err "'model.tensors' is missing"
expect 8 run create "$work/own.toml" --tensors "$work/none.json"
has err "none.json"
echo '{"version": 1, "tensors": [{"name": "w", "shape": [3, 0]}]}' \
  >"$work/bad.json"
expect 4 run create "$work/own.toml" --tensors "$work/bad.json"
has err 'bad.json: tensor 0 ("w"): a dimension is 0'
echo '{"version": 1, "tensors": [{"name": "w", "shape": [3, 4]}]}' \
  >"$work/tensors.json"
expect 6 run create "$work/own.toml" --tensors "$work/tensors.json" \
  --coordinator 127.0.0.1:1 --timeout 5s
expect 4 run create laptop --tensors "$work/tensors.json"
has err "'model.tensors' (--tensors) is only for"
sed -i '2a tensors = "tensors.json"' "$work/own.toml"
expect 4 dev up "$work/own.toml" --dir "$work/dev"
has err "trains a model of its own"
expect 4 dev baseline "$work/own.toml" --output "$work/alone"
has err "trains a model of its own"
expect 4 plan --model "$work/own.toml" --link 1Gb/s --tokens-per-second 100
has err "--model 12"

# No process listens at that port.
expect 6 run list --coordinator 127.0.0.1:1 --timeout 5s
has err "127.0.0.1:1"
# Without --insecure, plaintext is allowed only on loopback.
expect 4 run list --coordinator 192.0.2.1:7400
has err "insecure"

# A mirror without checkpoints.
expect 8 checkpoint list "file://$work/mirror"
has err "no whole checkpoint"
expect 2 checkpoint verify spring
has err "is not the URL of a mirror"

# No such model.
expect 8 eval --model "$work/none" --data "$work/bad.toml"
expect 8 generate --model "$work/none" --prompt x

# A file that is not a tokenizer.
expect 4 data tokenize --tokenizer "$work/bad.toml" --input "$work" \
  --output "$work/tokens"
has err "bad.toml"

if grep -q $'\x1b' "$work"/out "$work"/err; then
  echo "FAILED: escape sequences off a terminal"
  failed=1
fi
[[ $failed -eq 0 ]] && echo "all as it should be"
exit $failed
