# The parts of the services lab, for services-lab. Sourced after lib.sh, never run. Needs D, the lab's directory.
# All addresses are in the lab's network namespace, which has the loopback and the real machine's cable and nothing else.
IRONIC_PORT=6385 BMC_PORT=8000 FILES_PORT=8080
CABLE=10.0.2.2                                                    # this end; the guest is 10.0.2.15
PARTS=(files bmc ironic agent machine)
BMC_USER=admin BMC_PASSWORD=lab-bmc-password IRONIC_USER=ironic IRONIC_PASSWORD=lab-ironic-password

settings() { # LINE of what `up` chose
  sed -n "$1p" "$D/settings" 2>/dev/null || true
}
SERVICES=$(settings 1) KIT=$(settings 2) AUTH_NOW=$(settings 3) REAL_NOW=$(settings 4)
PY=$SERVICES/ironic/bin/python HERE=$SCRIPTS/services

variables() {
  VARIABLES=("QUARRY_SERVICES_DIR=$D" "QUARRY_SYSTEMS=$D/systems.json" "QUARRY_IRONIC_URL=http://127.0.0.1:$IRONIC_PORT"
    "QUARRY_REDFISH_URL=http://127.0.0.1:$BMC_PORT" "QUARRY_BMC_USER=$BMC_USER" "QUARRY_BMC_PASSWORD=$BMC_PASSWORD"
    "QUARRY_DEPLOY_ISO=http://$CABLE:$FILES_PORT/ramdisk.iso" "QUARRY_DISK_IMAGE=http://$CABLE:$FILES_PORT/disk.qcow2" "TMPDIR=$D/tmp")
  [ "$AUTH_NOW" != basic ] || VARIABLES+=("QUARRY_IRONIC_USER=$IRONIC_USER" "QUARRY_IRONIC_PASSWORD=$IRONIC_PASSWORD")
  local name                                                      # a proxy of this machine is not reachable from inside
  for name in http_proxy https_proxy all_proxy; do VARIABLES+=("$name=" "${name^^}="); done
}

# --- files ----------------------------------------------------------------------------------------------------------

systems_json() {
  local i comma=
  echo '['
  for (( i = 1; i <= SYSTEMS + REAL_NOW; i++ )); do
    printf '%s{"name": "%s", "uuid": "00000000-0000-4000-8000-%012x", "mac": "52:54:00:1a:b0:%02x", "redfish": "http://127.0.0.1:%d", "real": %s}\n' \
      "$comma" "$([ $i -le $SYSTEMS ] && echo "system-$i" || echo machine)" $i $i $(( BMC_PORT + i )) "$([ $i -le $SYSTEMS ] && echo false || echo true)"
    comma=', '
  done
  echo ']'
}

ironic_conf() {
  cat <<C
[DEFAULT]
auth_strategy = $([ "$AUTH_NOW" = basic ] && echo http_basic || echo noauth)
http_basic_auth_user_file = $D/ironic.password
rpc_transport = none
host = lab
state_path = $D/state
enabled_hardware_types = fake-hardware,redfish
enabled_bios_interfaces = no-bios,redfish
enabled_boot_interfaces = fake,redfish-virtual-media
enabled_deploy_interfaces = fake,direct,ramdisk,custom-agent
enabled_firmware_interfaces = no-firmware,redfish
enabled_inspect_interfaces = agent,redfish,fake,no-inspect
enabled_network_interfaces = noop
enabled_raid_interfaces = redfish,agent,no-raid
enabled_vendor_interfaces = fake,no-vendor,redfish
default_bios_interface = no-bios
default_firmware_interface = no-firmware
# no Glance, no Neutron, no Keystone
[service_catalog]
auth_type = none
endpoint_override = http://$CABLE:$IRONIC_PORT
[dhcp]
dhcp_provider = none
[api]
# the agent in the guest uses the cable, tests the loopback; the namespace has no other interface
host_ip = 0.0.0.0
port = $IRONIC_PORT
# the agent sends a heartbeat every 0.3 to 0.6 of it
ramdisk_heartbeat_timeout = 10
[database]
connection = sqlite:///$D/ironic.sqlite
[deploy]
http_url = http://$CABLE:$FILES_PORT
http_root = $D/http
default_boot_mode = uefi
erase_devices_priority = 0
erase_devices_metadata_priority = 10
fast_track = true
[agent]
require_tls = false
deploy_logs_collect = never
image_download_source = http
post_deploy_get_power_state_retry_interval = 1
[inspector]
require_managed_boot = false
add_ports = all
# with fast_track the ramdisk keeps running
power_off = false
[conductor]
automated_clean = true
check_provision_state_interval = 2
clean_callback_timeout = ${CALLBACK_SECONDS:-60}
deploy_callback_timeout = ${CALLBACK_SECONDS:-60}
inspect_wait_timeout = ${CALLBACK_SECONDS:-60}
sync_power_state_interval = 5
[redfish]
connection_attempts = 1
connection_retry_interval = 1
C
}

agent_conf() {
  cat <<C
[DEFAULT]
debug = true
api_url = http://$CABLE:$IRONIC_PORT
listen_host = 0.0.0.0
advertise_host = 10.0.2.15
enable_auto_tls = false
inspection_collectors = default
disk_wait_attempts = 1
ip_lookup_attempts = 1
C
}

# Two disks that turn and two that do not; sizes, serials and WWNs that tests can tell apart.
machine_files() {
  local M=$D/machine name
  mkdir -p "$M"/{bin,disks,uml}
  truncate -s 4G "$M/disks/a" "$M/disks/b" "$M/disks/c"; truncate -s 2G "$M/disks/d"
  printf '%s\n' "a ACME LAB-HDD A0A1 1" "b ACME LAB-HDD B0B2 1" "c ACME LAB-SSD C0C3 0" "d ACME LAB-SSD D0D4 0" > "$M/disks/list"
  printf 'NAME=machine\nKIT=%q\nAGENT=%q\nFAST=%q\n' "$KIT" "$SERVICES/agent" "$HERE/guest" > "$M/guest.env"
  agent_conf > "$M/agent.conf"
  # The agent calls them by name. A reboot in place would find the guest's cable busy.
  printf '#!/bin/sh\nsync\necho o > /proc/sysrq-trigger\nsleep 60\n' > "$M/bin/poweroff"
  printf '#!/bin/sh\n: > /run/machine/reboot\nsync\necho o > /proc/sysrq-trigger\nsleep 60\n' > "$M/bin/reboot"
  chmod +x "$M"/bin/*
  jq --arg system "http://127.0.0.1:$BMC_PORT/redfish/v1/Systems/" --arg kit "$KIT" --arg init "$HERE/guest-init" --arg log "$D/log" \
    '.[] | select(.real) | {system: ($system + .uuid), mac, kit: $kit, init: $init, log: $log, memory: "768M", tap: "cable"}' \
    "$D/systems.json" > "$M/machine.json"
}

# What hosts are provisioned with: a disk with one file system, labeled lab-root, with the file `marker`. GPT: with a DOS
# partition table the agent would install a boot loader, which it refuses in BIOS mode.
disk_image() {
  local W=$D/tmp/image; mkdir -p "$W/root"
  echo "marker of the lab" > "$W/root/marker"
  truncate -s 16M "$W/raw"
  printf 'label: gpt\nstart=2048, type=linux, name=root\n' | sfdisk -q "$W/raw"
  mkfs.ext4 -q -F -d "$W/root" -L lab-root -E offset=1048576 "$W/raw" 14M
  qemu-img convert -O qcow2 "$W/raw" "$D/http/disk.qcow2"
  sha256sum < "$D/http/disk.qcow2" | cut -d' ' -f1 > "$D/http/disk.qcow2.sha256"
  rm -r "$W"
}

password_line() { # USER PASSWORD
  "$PY" -c 'import bcrypt, sys; print("%s:%s" % (sys.argv[1], bcrypt.hashpw(sys.argv[2].encode(), bcrypt.gensalt(rounds=4)).decode()))' "$@"
}

# --- parts ----------------------------------------------------------------------------------------------------------

start_part() { # NAME
  local run
  ! pid_alive "$D/run/$1" >/dev/null || return 0
  case $1 in
    files) run=("$PY" -m http.server --bind 0.0.0.0 --directory "$D/http" $FILES_PORT);;
    bmc) run=("$PY" "$HERE/bmc.py" "$D" $BMC_PORT);;
    ironic) ironic_conf > "$D/ironic.conf"; run=("$PY" "$HERE/ironic_logged.py" "$D/log/requests.log" --config-file "$D/ironic.conf");;
    agent) run=("$PY" "$HERE/agent.py" "$D" "http://127.0.0.1:$IRONIC_PORT");;
    machine) [ "$REAL_NOW" = 1 ] || return 0; run=("$PY" "$HERE/machine.py" "$D/machine");;
    *) die "no part $1; there are: ${PARTS[*]}";;
  esac
  variables
  setsid env "${VARIABLES[@]}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 "${run[@]}" </dev/null >>"$D/log/$1.log" 2>&1 &
  pid_of $! > "$D/run/$1"
}

# With its whole session: Ironic has a worker.
stop_part() { # NAME
  [[ " ${PARTS[*]} " = *" $1 "* ]] || die "no part $1; there are: ${PARTS[*]}"
  local name=$1 pid; pid=$(pid_alive "$D/run/$name") || return 0
  kill "$pid"
  gone() { ! pid_alive "$D/run/$name"; }
  poll 8 gone || true
  kill -9 -- "-$pid" 2>/dev/null || true
  poll 5 gone || die "$name (PID $pid in the lab) does not stop"
  rm -f "$D/run/$name"
}

answers() { curl -sf -m 5 -o /dev/null -H 'X-OpenStack-Ironic-API-Version: 1.89' -A services-lab "$@"; }
wait_part() { # NAME
  local probe=(true) name=$1 end=$(( SECONDS + 60 ))
  case $name in
    files) probe=(answers "http://127.0.0.1:$FILES_PORT/ramdisk.iso");;
    bmc) probe=(answers "http://127.0.0.1:$BMC_PORT/redfish/v1/");;
    ironic) probe=(answers -u "$IRONIC_USER:$IRONIC_PASSWORD" "http://127.0.0.1:$IRONIC_PORT/v1/drivers/redfish");;   # asks the conductor, too
    machine) [ "$REAL_NOW" = 0 ] || probe=(test -s "$D/machine/state");;
  esac
  until "${probe[@]}"; do
    pid_alive "$D/run/$name" >/dev/null || { tail -n 20 "$D/log/$name.log"; die "$name ended; its log is $D/log/$name.log"; }
    [ $SECONDS -lt $end ] || { tail -n 20 "$D/log/$name.log"; die "$name does not answer; its log is $D/log/$name.log"; }
    sleep 0.1
  done
}

# --- inside -----------------------------------------------------------------------------------------------------------

# The first process of the namespaces.
inner() {
  local part begun; begun=$(date +%s%N)
  ip link set lo up
  ip tuntap add cable mode tap; ip addr add $CABLE/24 dev cable; ip link set cable up
  # User Mode Linux drops a frame that the sender's kernel left to be segmented; TCP then waits seconds for each.
  ip link set cable gso_max_segs 1
  systems_json > "$D/systems.json"
  truncate -s 1M "$D/http/ramdisk.iso"
  cp "$SERVICES/schema.sqlite" "$D/ironic.sqlite"
  password_line $IRONIC_USER $IRONIC_PASSWORD > "$D/ironic.password"
  [ "$REAL_NOW" = 0 ] || { machine_files; disk_image; }
  for part in files bmc ironic; do start_part $part; done
  for part in files bmc; do wait_part $part; done
  start_part machine; wait_part machine; wait_part ironic; start_part agent
  echo "up after $(( ($(date +%s%N) - begun) / 1000000 )) ms"
  touch "$D/ready"
  trap '' TERM INT HUP
  while :; do sleep 3600 & wait $!; done                          # bash reaps what others leave to it
}

at_set() { # SYSTEM KEY=JSON...
  local name=$1 pair object='{}'; shift
  jq -e --arg name "$name" 'any(.[]; .name == $name)' "$D/systems.json" >/dev/null || die "no system $name; they are in $D/systems.json"
  for pair in "$@"; do
    object=$(jq -c --arg key "${pair%%=*}" --argjson value "${pair#*=}" '.[$key] = $value' <<< "$object") || die "$pair is not KEY=JSON"
  done
  "$PY" "$HERE/control.py" <<< "$object" || die "nothing was changed"
  echo "$object" > "$D/control/$name.json.new"; mv "$D/control/$name.json.new" "$D/control/$name.json"
  sleep 0.25                                                      # the BMCs read it every 0.1 s
}

at_auth() { # none|basic
  [[ $1 = none || $1 = basic ]] || die "authentication is none or basic, not $1"
  AUTH_NOW=$1; sed -i "3s/.*/$1/" "$D/settings"
  stop_part agent; stop_part ironic; start_part ironic; wait_part ironic; start_part agent
  if [ "$1" = basic ]; then echo "$IRONIC_USER:$IRONIC_PASSWORD"; fi
}

at_sh() { # COMMANDS
  answers_echo() { [ "$(echo 'echo up' | socat -t 5 - TCP:10.0.2.15:2222 2>/dev/null)" = up ]; }
  poll 60 answers_echo || die "the real machine does not answer; is it on? its console is $D/log/console.log"
  # a machine whose power is cut never ends a connection
  printf '%s\n' "$1" | socat -t 600 - TCP:10.0.2.15:2222,keepalive,keepidle=10,keepintvl=5,keepcnt=4
}
