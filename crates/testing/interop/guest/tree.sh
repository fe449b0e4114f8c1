step "untar, compile and run something small"
cd "$D" || exit 1
rm -rf build; mkdir build; cd build || exit 1
mkdir -p "$S/src/lib" "$S/src/include"
cat >"$S/src/include/sum.h" <<'C'
int sum(const int *values, int count);
C
cat >"$S/src/lib/sum.c" <<'C'
#include "../include/sum.h"
int sum(const int *values, int count) { int total = 0; while (count--) total += *values++; return total; }
C
cat >"$S/src/main.c" <<'C'
#include <stdio.h>
#include "include/sum.h"
int main(void) { int v[] = { 1, 2, 39 }; printf("%d\n", sum(v, 3)); return 0; }
C
printf 'all: prog\nprog: main.o lib/libsum.a\n\tgcc -o $@ main.o lib/libsum.a\nlib/libsum.a: lib/sum.o\n\tar rcs $@ $^\n' >"$S/src/Makefile"
ln -sf main.c "$S/src/link.c"
tar -C "$S" -czf "$S/src.tar.gz" src
must tar --no-same-owner -xzf "$S/src.tar.gz"; must make -s -C src
same output "$(src/prog)" 42
same link "$(readlink src/link.c)" main.c
cd ..; rm -rf build
step "ACL by extended attribute"
python3 - "$D" <<'P' || fail "ACL"
import os, sys
d = sys.argv[1] + "/acl-test"; os.mkdir(d)
acl = os.getxattr(d, "afs.acl"); print("acl:", acl)
lines = acl.rstrip(b"\0").decode().split("\n")
assert lines[0].strip().isdigit(), acl
os.setxattr(d, "afs.acl", b"2\n1\nsystem:administrators\t127\nsystem:anyuser\t127\nsystem:authuser\t2\n")
after = os.getxattr(d, "afs.acl").rstrip(b"\0").decode().split("\n")
assert after[0] == "2" and after[1] == "1" and "system:authuser\t2" in after, after
assert "system:anyuser\t127" in after, after
print("fid:", os.getxattr(d, "afs.fid"), "volume:", os.getxattr(d, "afs.volume"))
try:
    os.setxattr(d, "afs.acl", b"garbage"); sys.exit("a garbage ACL was taken")
except OSError as error: print("refused:", error)
os.rmdir(d)
P
