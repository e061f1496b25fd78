#!/usr/bin/env bash
# Debian packages of an installation: deb.sh STAGE VERSION OUT makes OUT/quern_VERSION_ARCH.deb (programs, library, manual, units) and
# OUT/libquern-dev_VERSION_ARCH.deb (what programs are compiled with) of what `meson install --destdir STAGE` laid down.
set -euo pipefail
stage=$(realpath "$1") version=$2 out=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# Of the staged files: those for development, by the ends of their names.
is_development() { [[ $1 == */include/* || $1 == */pkgconfig/* || $1 == */cmake/* || $1 == *.so ]]; }

# fields PACKAGE: the lines of its control file.
fields() {
  local name=$1 depends=$2 summary=$3 size
  size=$(du -sk "$work/$name" | cut -f1)
  printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: Quern developers <quern@localhost>\nInstalled-Size: %s\n' "$name" "$version" "$arch" "$size"
  printf 'Depends: %s\nSection: science\nPriority: optional\nDescription: %s\n' "$depends" "$summary"
}

programs() {
  while read -r file; do
    if [[ $(head -c 4 "$file" | tr -d '\0') == $'\x7fELF' ]]; then echo "$file"; fi
  done < <(find "$work/quern" -type f)
}

# What the programs need, by the packages that hold their libraries.
library_dependencies() {
  mkdir -p "$work/debian"
  printf 'Source: quern\n\nPackage: quern\nArchitecture: any\n' > "$work/debian/control"
  # shellcheck disable=SC2046
  (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -l"$(dirname "$(find "$work/quern" -name 'libquern.so.0' | head -1)")" $(programs) 2>/dev/null) |
    sed -n 's/^shlibs:Depends=//p'
}

while read -r -d '' file; do
  relative=${file#"$stage"}
  package=quern
  is_development "$relative" && package=libquern-dev
  mkdir -p "$work/$package$(dirname "$relative")"
  cp -a "$file" "$work/$package$relative"
done < <(find "$stage" \( -type f -o -type l \) -print0)
programs | xargs strip --strip-unneeded
for package in quern libquern-dev; do
  install -Dm644 "$root/LICENSE" "$work/$package/usr/share/doc/$package/copyright"
  gzip -9nc "$root/CHANGELOG.md" > "$work/$package/usr/share/doc/$package/changelog.gz"
  mkdir -p "$work/$package/DEBIAN"
done
find "$work/quern" -path '*/man/*' -type f -exec gzip -9n {} +
fields quern "$(library_dependencies)" "GPU kernels for tensor graphs, from a local kernel cache daemon" > "$work/quern/DEBIAN/control"
printf '#!/bin/sh\nset -e\nldconfig\n' > "$work/quern/DEBIAN/postinst"
chmod 755 "$work/quern/DEBIAN/postinst"
fields libquern-dev "quern (= $version)" "Header and build files of Quern's C and C++ interface" > "$work/libquern-dev/DEBIAN/control"
for package in quern libquern-dev; do
  dpkg-deb --root-owner-group -Zgzip --build "$work/$package" "$out/${package}_${version}_$arch.deb" >/dev/null
done
