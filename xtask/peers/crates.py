"""Which crates a first build compiles, how long each takes, and which of the project's dependencies wants it.

cargo build -p xtask --timings --target-dir FRESH
python xtask/peers/crates.py FRESH/cargo-timings/cargo-timing.html [--most 30]

Seconds are the compiler's, on as many cores as cargo uses, so they add up to more than the build took. A crate that is wanted by one of the
project's dependencies alone would go with it; `several` means that it would stay.
"""

import argparse
import collections
import json
import re
import subprocess
from pathlib import Path


def compiled(page):
    """Seconds of each crate, over all of its units."""
    units = json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);\n", page.read_text(encoding="utf-8"), re.S)[1])
    seconds = collections.Counter()
    for unit in units:
        seconds[unit["name"], unit["version"]] += unit["duration"]
    return seconds


def dependencies():
    """Names and versions of packages, what each needs to be built, and which are the project's own."""
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version", "1"]))
    names = {package["id"]: (package["name"], package["version"]) for package in metadata["packages"]}
    wanted = lambda kinds: any(kind["kind"] != "dev" for kind in kinds)
    needs = {
        names[node["id"]]: {names[dep["pkg"]] for dep in node["deps"] if wanted(dep["dep_kinds"])}
        for node in metadata["resolve"]["nodes"]
    }
    return needs, {names[member] for member in metadata["workspace_members"]}


def reached(needs, members, without=None):
    """What is built for the project's own crates if none of them asked for one of their dependencies."""
    found, left = set(), list(members)
    while left:
        crate = left.pop()
        if crate not in found:
            found.add(crate)
            left += needs[crate] - {without} if crate in members else needs[crate]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--most", type=int, default=30)
    args = parser.parse_args()
    seconds, (needs, own) = compiled(args.page), dependencies()
    members = own & set(seconds)
    # What the build did not compile is for features or targets that it was not asked for.
    needs = {crate: {need for need in wanted if need in seconds} for crate, wanted in needs.items() if crate in seconds}
    direct = {need for member in members for need in needs[member]} - own
    gone = {crate: set(needs) - reached(needs, members, without=crate) for crate in direct}
    wants = lambda crate: [root for root, lost in gone.items() if crate in lost]
    print(f"{len(seconds)} crates, {sum(seconds.values()):.0f} s, {len(own & set(seconds))} of them the project's own with "
          f"{sum(seconds[crate] for crate in members):.0f} s\n")
    print("| dependency of | crates that would go with it | seconds | share |\n|---|---:|---:|---:|")
    weight = {crate: sum(seconds[lost] for lost in gone[crate]) for crate in direct}
    for crate in sorted(direct, key=weight.get, reverse=True)[: args.most]:
        users = sorted(name.removeprefix("undertone-") for name, version in members if crate in needs[name, version])
        share = 100 * weight[crate] / sum(seconds.values())
        print(f"| `{crate[0]}` of {', '.join(users)} | {len(gone[crate])} | {weight[crate]:.0f} | {share:.1f} % |")
    print("\n| crate | seconds | wanted by |\n|---|---:|---|")
    for crate, time in seconds.most_common(args.most):
        roots = sorted(root[0] for root in wants(crate))
        print(f"| `{crate[0]}` {crate[1]} | {time:.0f} | {'the project' if crate in own else ', '.join(roots) or 'several'} |")


if __name__ == "__main__":
    main()
