#!/usr/bin/env bash
# Runs N processes of PROGRAM on one machine as if they were on N hosts: each in a network namespace of its own, behind a link
# of RATE (1gbit) and with a DELAY (5ms) where the kernel can delay packets. Needs root, iproute2 and OpenMPI.
#
#   sudo docs/cluster/namespaces.sh 2 target/release/xtask train --config configs/cw-contest.yaml
#   cargo xtask bench ranks --launcher docs/cluster/namespaces.sh -n 2,4,3
set -euo pipefail
if [ $# -lt 2 ] || [ "$(id -u)" != 0 ]; then
  echo "usage, as root: [RATE=1gbit] [DELAY=5ms] $0 N PROGRAM [ARGUMENTS]" >&2
  exit 2
fi
count=$1
shift
name=ut$$
net=10.87
remove() {
  for k in $(seq "$count"); do
    ip link del "$name.$k" 2>/dev/null || true
    ip netns del "$name-$k" 2>/dev/null || true
  done
  ip link del "$name" 2>/dev/null || true
}
trap remove EXIT

ip link add "$name" type bridge
ip addr add "$net.0.1/16" dev "$name"
ip link set "$name" up
jobs=()
for k in $(seq "$count"); do
  ip netns add "$name-$k"
  ip link add "$name.$k" type veth peer name eth0 netns "$name-$k"
  ip link set "$name.$k" master "$name" up
  ip -n "$name-$k" addr add "$net.1.$k/16" dev eth0
  ip -n "$name-$k" link set eth0 up
  ip -n "$name-$k" link set lo up
  ip netns exec "$name-$k" tc qdisc add dev eth0 root handle 1: tbf rate "${RATE:-1gbit}" burst 256kb latency 50ms
  if ! ip netns exec "$name-$k" tc qdisc add dev eth0 parent 1:1 netem delay "${DELAY:-5ms}" limit 100000 2>/dev/null; then
    [ "$k" = 1 ] && echo "this kernel has no netem: packets are not delayed" >&2
  fi
  jobs+=(-n 1 ip netns exec "$name-$k" "$@" :)
done
unset 'jobs[-1]'

# Through the links alone: no shared memory, and no address but that of the bridge.
export PMIX_MCA_ptl_base_if_include=$name OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe --bind-to none --mca btl tcp,self --mca btl_tcp_if_include "$net.0.0/16" \
  --mca oob_tcp_if_include "$name" "${jobs[@]}"
