#!/bin/bash
# systemd as the first process of namespaces of its own, over a copy-on-write view of this file system in which Quern is installed.
#   systemd_root.sh FOLDER BUILD CONFIGURATION [NVRTC]
# To be run by unshare --mount --pid --fork --uts --ipc --cgroup, as root; FOLDER is empty. It never returns.
set -e
folder=$1 build=$2 configuration=$3 nvrtc=$4
mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
mkdir "$folder"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for place in run tmp dev; do mount -t tmpfs tmpfs "$place"; done
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
mkdir dev/shm

install -D "$build/daemon/quernd" usr/bin/quernd
install -D "$build/tools/quern" usr/bin/quern
install -D -t usr/libexec/quern "$build/daemon/quern-worker" "$build/cache/quern-store"
install -D -m 644 "$configuration" etc/quern/quern.conf
units=$(dirname "$0")/../../daemon/systemd
install -D -m 644 "$units/quern.sysusers" usr/lib/sysusers.d/quern.conf
for unit in service socket; do
  sed 's|@bindir@|/usr/bin|' "$units/quern-system.$unit.in" > "etc/systemd/system/quern-system.$unit"
  sed 's|@bindir@|/usr/bin|' "$units/quernd.$unit.in" > "usr/lib/systemd/user/quernd.$unit"
done
# What logind and user@.service do when somebody logs in, without PAM and the bus.
cat > etc/systemd/system/login@.service <<'UNIT'
[Service]
Type=notify
User=%i
Delegate=yes
RuntimeDirectory=user/%i
RuntimeDirectoryMode=0700
StateDirectory=home-%i
Environment=XDG_RUNTIME_DIR=/run/user/%i HOME=/var/lib/home-%i
ExecStart=/lib/systemd/systemd --user
KillMode=mixed
UNIT
if [[ -n $nvrtc ]]; then # where only this user may look
  mkdir -p usr/lib/quern/nvrtc
  cp -L "$nvrtc"/libnvrtc*.so* usr/lib/quern/nvrtc
fi
printf "[Unit]\nRequires=quern-system.socket basic.target\n" > etc/systemd/system/try.target
for unit in systemd-udevd systemd-udev-trigger systemd-networkd systemd-resolved systemd-timesyncd systemd-remount-fs; do
  ln -sf /dev/null "etc/systemd/system/$unit.service"
done
: > etc/fstab
chroot . systemd-sysusers
exec chroot . /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=try.target --log-target=null
