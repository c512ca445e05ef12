"""One run of the demo's load, client against warehouse: requests, TTFT, tokens, the bill.

python benchmarks/demo_agreement.py [--seconds 60] [--model smollm2]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from agreement import compare


def main() -> None:
    """Run the demo headless in a store of its own, and print how far the two sides agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--model", default="smollm2")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(sys.executable, "-m", "app.cli", "demo", "--headless", "--store", folder),
                *("--seconds", str(chosen.seconds), "--model", chosen.model),
            ],
            check=True,
        )
        found = compare(Path(folder))
    print(f"\nrequests the client saw end        {found.n_ended}")
    print(f"  not in requests / more than once {len(found.missing)} / {len(found.repeated)}")
    print(f"  outcomes (client / warehouse)    {found.outcomes}")
    for quantile in (0.5, 0.95, 1.0):
        ms = found.ttft_difference_s(quantile) * 1000
        print(f"|TTFT gateway − client| p{quantile * 100:<9g}  {ms:.2f} ms")
    for name, client in found.client_tokens.items():
        print(f"{name:<34} client {client}, warehouse {found.warehouse_tokens[name]}")
    print("the bill in every hour, USD")
    for row in found.hours.iter_rows(named=True):
        print("  " + "  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
