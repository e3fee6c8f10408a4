# The parts of a cluster on one machine, for kube-lab (one node beside the control plane) and kube-nodes (several nodes).
# Sourced after lib.sh, never run. Needs D, the lab's directory; what runs inside also LOG, the directory of its logs.
IP=10.99.0.1 SERVICES=10.96.0.0/16                                # of the API server
CGROUP=quarry-lab-$(key <<< "$D")                                 # kubelet's cgroupRoot, so that `down` knows what is ours
cgroups() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/mounts | sed "s#\$#/$CGROUP#"; }   # in each hierarchy

# --- from outside -------------------------------------------------------------------------------------------------

make_cgroups() { # [CHILD...]
  local p child f
  cgroups | while read -r p; do
    for child in "" "$@"; do
      mkdir -p "$p/$child"
      # v1: a cgroup with an empty cpuset accepts no process. v2: children may use what the parent has enabled.
      for f in cpuset.cpus cpuset.mems; do [ ! -e "$p/$child/$f" ] || cat "$(dirname "$p/$child")/$f" > "$p/$child/$f"; done
    done
  done
}
remove_cgroups() { # [CHILD]: it, or all, and what is below
  local p; cgroups | while read -r p; do [ ! -d "$p/${1:-}" ] || find "$p/${1:-}" -depth -type d -exec rmdir {} + || return 1; done
}

empty_or_lab() { [ -z "$(ls -A "$D" 2>/dev/null)" ] || [ -e "$D/.kube-lab" ] || die "$D is not empty and not a lab; choose another directory"; }
unmount_below() { local p; awk -v d="$D/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r | while read -r p; do umount "$p" || note "still mounted: $p"; done; }
empty_lab() { find "$D" -mindepth 1 -maxdepth 1 ! -name log ! -name .kube-lab -exec rm -rf --one-file-system {} +; }

# kill_first FILE: the process that the file names (pid_of), and with it the PID namespace whose first process it is
kill_first() {
  local file=$1 pid; pid=$(pid_alive "$file") || return 0
  kill -9 "$pid"                                                  # the kernel kills everything in the namespace with it
  gone() { ! pid_alive "$file"; }
  poll 20 gone || die "PID $pid does not stop"
}

# Loop devices are in no namespace. A lab's are known by the device and inode of their file: the path is the one inside.
attached() { losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO | awk '{print $1, $2, $3}'; }
# detach_loop LOOP: first the loop devices over it (kubelet's lock on a Block volume), then itself
detach_loop() {
  local upper dev ino nodes; nodes=$(stat -c '%Hd:%Ld %i' "$1" "$1"p* 2>/dev/null || true)
  attached | while read -r upper dev ino; do
    ! grep -qxF "$dev $ino" <<< "$nodes" || detach_loop "$upper"
  done
  partx -d "$1" 2>/dev/null || true                               # else they would show the bytes of the next file
  losetup -d "$1" || note "still attached: $1"
}

# --- inside ---------------------------------------------------------------------------------------------------------

declare -A running
begun=$(date +%s%N)
elapsed() { echo "$(( ($(date +%s%N) - begun) / 1000000 )) ms"; }
run() { local name=$1; shift; "$@" >"$LOG/$name.log" 2>&1 & running[$name]=$!; }

# wait_for WHAT CMD...: until CMD succeeds; prints the time, or the reason why not
wait_for() {
  local what=$1 end=$(( SECONDS + 60 )) name; shift
  until "$@" >/dev/null 2>&1; do
    for name in "${!running[@]}"; do
      kill -0 "${running[$name]}" 2>/dev/null || { tail -n 20 "$LOG/$name.log"; die "$name ended while waiting for: $what"; }
    done
    [ $SECONDS -lt $end ] || { "$@" || true; die "not in 60 s: $what"; }
    sleep 0.1
  done
  echo "$what after $(elapsed)"
}

# As PID 1 a lab's process reaps the others; it logs when a part of the cluster ends.
reap() {
  local ended code name
  while [ ${#running[@]} -gt 0 ]; do
    wait -n -p ended "${running[@]}" && code=0 || code=$?
    for name in "${!running[@]}"; do
      [ "${running[$name]}" != "$ended" ] || { echo "$name ended with code $code"; unset "running[$name]"; }
    done
  done
}

# Kubelet sets these for the whole machine unless they have these values.
cover_sysctls() { # DIR
  local name value; mkdir -p "$1"
  while read -r name value; do
    [ -e "/proc/sys/$name" ] || continue
    echo "$value" > "$1/${name//\//.}"; mount --bind "$1/${name//\//.}" "/proc/sys/$name"
  done <<'S'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
S
}

# overlay DIR SCRATCH: inside, DIR is an overlay whose upper layer is in memory. The mount points below it then exist in the
# lab alone: one on the machine would have to be removed by `down`, and the kernel silently drops what other mount
# namespaces have mounted on a removed directory.
overlay() { mkdir -p "$2"/{upper,work}; mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$1"; }

# keep DIR...: the machine's own, also below what is mounted next; they are reached through open files meanwhile
keep() {
  local p f; kept=()
  for p in "$@"; do if [ -d "$p" ]; then exec {f}<"$p"; kept+=("$f $p"); fi; done
}
show_kept() {
  local p f
  for p in "${kept[@]}"; do
    read -r f p <<< "$p"
    if ! [ "$p" -ef "/proc/self/fd/$f" ]; then mkdir -p "$p"; mount --no-canonicalize --rbind "/proc/self/fd/$f" "$p"; fi
    exec {f}<&-
  done
}

ec_key() { openssl req "$@" -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes 2>/dev/null; }
identity() { # FILE SUBJECT ALTERNATIVE-NAMES: a certificate and a kubeconfig that uses it
  ec_key -keyout "pki/$1.key" -out "pki/$1.csr" -subj "$2"
  openssl x509 -req -in "pki/$1.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -days 3650 -out "pki/$1.crt" \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth' "$3") 2>/dev/null
  cat > "$1.kubeconfig" <<K
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://$IP:6443", certificate-authority: "$D/pki/ca.crt"}}]
users: [{name: $1, user: {client-certificate: "$D/pki/$1.crt", client-key: "$D/pki/$1.key"}}]
contexts: [{name: lab, context: {cluster: lab, user: $1}}]
current-context: lab
K
}
node_identity() { identity "$1" "/O=system:nodes/CN=system:node:$2" "DNS:$2,IP:$3"; }   # FILE NODE ADDRESS
identities() {
  mkdir -p pki; chmod 700 pki
  ec_key -x509 -keyout pki/ca.key -out pki/ca.crt -days 3650 -subj /CN=lab
  openssl genrsa -out pki/sa.key 2048 2>/dev/null; openssl rsa -in pki/sa.key -pubout -out pki/sa.pub 2>/dev/null
  identity apiserver /CN=kube-apiserver "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:${SERVICES%.*}.1,IP:$IP"
  identity admin /O=system:masters/CN=admin DNS:admin
  identity controller-manager /CN=system:kube-controller-manager DNS:controller-manager
  identity scheduler /CN=system:kube-scheduler DNS:scheduler
  identity proxy /CN=system:kube-proxy DNS:proxy
}

start_api() { # [FLAG...] of the API server
  run etcd etcd --data-dir "$D/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379
  run apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address=$IP --secure-port=6443 \
    --cert-dir="$D/pki" --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key --client-ca-file=pki/ca.crt \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=pki/sa.pub --service-account-signing-key-file=pki/sa.key \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --service-cluster-ip-range=$SERVICES --allow-privileged=true \
    --kubelet-client-certificate=pki/admin.crt --kubelet-client-key=pki/admin.key --kubelet-certificate-authority=pki/ca.crt \
    --kubelet-preferred-address-types=InternalIP "$@"
}
start_controllers() { # [FLAG...] of the controller manager
  # Its default limit of 20 calls per second would cost 4 s at start.
  run controller-manager kube-controller-manager --kubeconfig=controller-manager.kubeconfig --use-service-account-credentials --leader-elect=false \
    --kube-api-qps=500 --kube-api-burst=1000 \
    --service-account-private-key-file=pki/sa.key --root-ca-file=pki/ca.crt --cluster-signing-cert-file=pki/ca.crt --cluster-signing-key-file=pki/ca.key "$@"
  run scheduler kube-scheduler --kubeconfig=scheduler.kubeconfig --leader-elect=false
}

# node_files DIR NAME ADDRESS PODS CGROUP IDENTITY: what containerd, kubelet and kube-proxy of a node read, into DIR; more
# settings of kubelet on stdin
node_files() {
  local dir=$1 name=$2 address=$3 pods=$4 cgroup=$5 identity=$6
  mkdir -p "$dir/cni"
  cat > "$dir/cni/10-lab.conflist" <<C
{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
C
  cat > "$dir/containerd.toml" <<C
version = 3
root = "$dir/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "lab.local/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  # runc can't lower the score without CAP_SYS_RESOURCE, and fails
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$BIN/cni"]
    conf_dir = "$dir/cni"
C
  { cat <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
address: $address
authentication: {x509: {clientCAFile: "$D/pki/ca.crt"}}
tlsCertFile: $D/pki/$identity.crt
tlsPrivateKeyFile: $D/pki/$identity.key
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
podLogsDir: $LOG/pods
volumePluginDir: $dir/plugins
syncFrequency: 10s
K
    cat
  } > "$dir/kubelet.yaml"
  cat > "$dir/proxy.yaml" <<K
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: "$D/proxy.kubeconfig"}
conntrack: {maxPerCore: 0}
hostnameOverride: $name
K
}
start_containerd() { # DIR IMAGE...: with these images, once
  local dir=$1 image; shift
  run containerd containerd -c "$dir/containerd.toml"
  wait_for "containerd ready" ctr version
  [ ! -e "$dir/imported" ] || return 0
  for image in "$@"; do
    ctr -n k8s.io images import "$image" >/dev/null 2>"$LOG/import.log" || { cat "$LOG/import.log"; die "can't import $image"; }
  done
  touch "$dir/imported"
}
start_kubelet() { # DIR NAME ADDRESS IDENTITY
  run kubelet kubelet --config="$1/kubelet.yaml" --kubeconfig="$D/$4.kubeconfig" --hostname-override="$2" --node-ip="$3"
}
service_network() { wait_for "service network ready" timeout 1 bash -c "</dev/tcp/${SERVICES%.*}.1/443"; }
