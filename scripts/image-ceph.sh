# The root of quarry.dev/ceph:lab, for `image ceph`: monitor, manager, OSD and command line from Debian's packages, for the
# cluster tier. Sourced by scripts/image, never run.
# Of 464 MB of packages a third is needed: the files below, and the libraries that they need.
CEPH_PACKAGES=ceph-mon,ceph-osd,ceph-mgr,ceph-common,python3-minimal,bash,dash,coreutils,sed,grep,util-linux,libblkid1,libgcc-s1
CEPH_SHELL=(bin/{bash,sh,dash,cat,chmod,cp,date,dd,echo,false,grep,ln,ls,lsblk,mkdir,mv,readlink,rm,sed,sleep,sync,touch,true}
            sbin/{blkid,blockdev,wipefs}
            usr/bin/{base64,basename,cut,dirname,env,head,id,md5sum,od,printf,realpath,seq,sha256sum,sort,stat,tail,tee,test,timeout,tr,truncate,wc})
CEPH_PROGRAMS=(usr/bin/{ceph,rados,ceph-mon,ceph-osd,ceph-mgr,ceph-authtool,ceph-conf,monmaptool,osdmaptool,crushtool,ceph-bluestore-tool,ceph-objectstore-tool})
# The monitor loads erasure-code plugins when it starts. The manager's health is an error when one of its ten always-on
# modules is missing; those import cephfs, rbd and requests. The command line reads the version of prettytable.
CEPH_MODULES=(balancer crash devicehealth orchestrator pg_autoscaler progress rbd_support status telemetry volumes iostat)
CEPH_PYTHON=(ceph ceph_argparse.py ceph_daemon.py 'rados.*.so' 'rbd.*.so' 'cephfs.*.so' prettytable 'prettytable-*.dist-info' wcwidth
             requests urllib3 chardet charset_normalizer idna certifi yaml _yaml dateutil six.py)
CEPH_PYTHON_UNUSED=(ensurepip idlelib lib2to3 pydoc_data test tkinter turtledemo)

ceph_root() { # WORK
  local all=$1/all out=$1/out lib p g
  unpack "$all" "$CEPH_PACKAGES" '/usr/share/ceph/mgr/*'
  lib=usr/lib/$(uname -m)-linux-gnu
  mkdir -p "$out"/{dev,proc,sys,run/ceph,tmp,root,etc/ceph,var/lib/ceph/{mon,mgr,osd},var/log/ceph}; chmod 1777 "$out/tmp"
  ln -s /run "$out/var/run"
  # The user has the number of the images of the Ceph project.
  printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'ceph:x:167:167:ceph:/var/lib/ceph:/usr/sbin/nologin' > "$out/etc/passwd"
  printf '%s\n' root:x:0: disk:x:6: ceph:x:167: > "$out/etc/group"
  cd "$all"
  for p in "${CEPH_SHELL[@]}" "${CEPH_PROGRAMS[@]}" usr/bin/python3 'usr/bin/python3.*[0-9]' 'usr/lib/python3.*' "$lib/ceph" "$lib/rados-classes" \
    "${CEPH_PYTHON[@]/#/usr/lib/python3/dist-packages/}" usr/share/ceph/mgr/mgr_{module,util}.py "${CEPH_MODULES[@]/#/usr/share/ceph/mgr/}" \
    'lib*/ld-linux-*.so.*' 'usr/share/doc/ceph-*/copyright' 'usr/share/doc/python3*/copyright'; do
    g=$(compgen -G "$p") || die "no package of the Ceph image contains $p"
    while read -r p; do cp -a --parents "$p" "$out/"; done <<< "$g"
  done
  for p in "${CEPH_PYTHON_UNUSED[@]}"; do rm -rf "$out"/usr/lib/python3.*/"$p"; done
  ceph_libraries "$out" libgcc_s.so.1 libblkid.so.1                 # these for our own binary, which prepares OSDs in this image
  cd "$OLDPWD"
}

# ceph_libraries OUT NAME...: these, and all that the files in OUT need, from the working directory; until nothing is missing
ceph_libraries() {
  local out=$1 name file missing=1; shift
  local -A taken=()
  while [ $missing = 1 ]; do
    missing=0
    for name in "$@" $(find "$out" -type f \( -perm -1 -o -name '*.so*' \) -exec readelf -d {} + 2>/dev/null | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | sort -u); do
      [ -z "${taken[$name]:-}" ] || continue
      taken[$name]=1 missing=1
      file=$(find lib usr/lib -name "$name" -print -quit)
      [ -n "$file" ] || die "no package of the Ceph image contains $name; add the package to CEPH_PACKAGES"
      cp -a --parents "$file" "$out/"
      while [ -L "$file" ]; do
        file=$(realpath -ms --relative-to=. "$(dirname "$file")/$(readlink "$file")"); cp -a --parents "$file" "$out/"
      done
    done
  done
}
