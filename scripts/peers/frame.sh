# What the comparisons have in common, sourced by them with the binary as the first argument, which is taken away.
# Sets `here`, `binary`, `python` (PEER_PYTHON, or the one that install.sh makes) and `threads`; `beside OURS PEER` prints
# the JSON of both runs, a line each, and the ratios.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$1
shift
python=$("$here/install.sh")
threads=$(nproc)

beside() {
  "$python" "$here/beside.py" "$@"
}
