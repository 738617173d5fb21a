#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python_test.sh "<modules>" script args...: runs a check with the first Python that has the modules: $FATHOM_PYTHON,
# .venv of the checkout, python3. Without one it says so and exits 77 (ctest: skipped), or 1 where CI is set.
needs=$1
shift
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
imports=pass
for module in $needs; do imports="$imports; import $module"; done
for python in "${FATHOM_PYTHON:-}" "$root/.venv/bin/python" python3; do
  [ -n "$python" ] || continue
  if "$python" -c "$imports" >/dev/null 2>&1; then
    exec "$python" -B "$@"
  fi
done
echo "SKIPPED: needs Python 3${needs:+ with }$needs; scripts/setup.sh installs it"
[ -n "${CI:-}" ] && exit 1
exit 77
