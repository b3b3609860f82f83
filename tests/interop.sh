#!/usr/bin/env bash
# Runs the tests of tests/interop.rs with the programs that read exported models, first with transformers 5 and then with
# transformers 4. It installs them below target/interop (2 GB) if they are not there. Without the models and data that
# these tests read, they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/target/interop
if [ ! -x "$place/venv/bin/python" ]; then
  python3 -m venv "$place/venv"
  "$place/venv/bin/pip" install --quiet torch "transformers==5.24.*" "peft==0.21.*" "ctranslate2==4.8.*" "faster-whisper==1.2.*" "pywhispercpp==1.5.*" "sentence-transformers==6.2.*"
  "$place/venv/bin/pip" install --quiet --target "$place/transformers-4" "transformers==4.57.*"
fi
export INTEROP_PYTHON=$place/venv/bin/python
cargo xtask test -E 'test(/^interop::/)'
PYTHONPATH=$place/transformers-4 cargo xtask test -E 'test(/^interop::/)'
