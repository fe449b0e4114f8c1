# Users with different tokens. /token.NAME has that of NAME; $CELL is the cell.
kafs_key=$(command -v kafs-key || echo /kafs-key)
as() { who=$1; shift; $kafs_key session sh -c 'k=$1 t=$2; shift 2; $k add '"$CELL"' "$t" >/dev/null && "$@"' sh "$kafs_key" "/token.$who" "$@"; }
anyone() { $kafs_key session "$@"; }
# The client only lets users with rights on a directory change its ACL, although the server would allow administrators,
# so each ACL includes them.
# /acl.py DIRECTORY ENTRY... with entries NAME=RIGHTS, negative ones -NAME=RIGHTS
cat >/acl.py <<'P'
import os, sys
letters = {c: 1 << i for i, c in enumerate("rwildka")}
entries = [e.rsplit("=", 1) for e in ["system:administrators=rlidwka"] + sys.argv[2:]]
rights = lambda text: sum(letters[c] for c in text)
plus = ["%s\t%d\n" % (n, rights(r)) for n, r in entries if not n.startswith("-")]
minus = ["%s\t%d\n" % (n[1:], rights(r)) for n, r in entries if n.startswith("-")]
os.setxattr(sys.argv[1], "afs.acl", ("%d\n%d\n%s%s" % (len(plus), len(minus), "".join(plus), "".join(minus))).encode() + b"\0") # OpenAFS requires the NUL
P
all=rlidwka

step "the administrator divides the volume"
as admin python3 /acl.py "$D" system:anyuser=l || fail "the administrator's ACL"
must as admin mkdir "$D/u1"; must as admin python3 /acl.py "$D/u1" u1=$all
anyone ls "$D" >/dev/null || fail "anyone may list"
refused "anonymous creation" anyone sh -c "echo text >$D/anonymous"
refused "a creation without rights" as u1 sh -c "echo text >$D/u1s"

step "a person's own directory"
as u1 sh -c "echo secret >$D/u1/f" || fail "own file"
same content "$(as u1 cat "$D/u1/f")" secret
same owner "$(as u1 stat -c %u "$D/u1/f")" 1001
refused "another's list" as u2 ls "$D/u1"
refused "another's read" as u2 cat "$D/u1/f"
refused "an anonymous read" anyone cat "$D/u1/f"
refused "another's ACL" as u2 python3 /acl.py "$D/u1" u2=$all

step "rights given and taken"
must as u1 python3 /acl.py "$D/u1" u1=$all u2=rl
same "read" "$(as u2 cat "$D/u1/f")" secret
refused "a write without w" as u2 sh -c "echo more >>$D/u1/f"
refused "a removal without d" as u2 rm -f "$D/u1/f"
must as u1 python3 /acl.py "$D/u1" u1=$all u2=rlidwk
as u2 sh -c "echo more >>$D/u1/f" || fail "a write with w"
same "both wrote" "$(as u1 cat "$D/u1/f")" "secret
more"
as u2 sh -c "echo mine >$D/u1/g" || fail "a creation with i"
same "its owner" "$(as u1 stat -c %u "$D/u1/g")" 1002
must as u1 python3 /acl.py "$D/u1" u1=$all u2=rl -u2=r
refused "a read with negative r" as u2 cat "$D/u1/f"
as u2 ls "$D/u1" >/dev/null || fail "a list beside negative r"

step "groups"
must as u1 python3 /acl.py "$D/u1" u1=$all u1:friends=rl
same "a member's read" "$(as u2 cat "$D/u1/g")" mine
refused "a read by who is no member" as u3 cat "$D/u1/g"
must as u1 python3 /acl.py "$D/u1" u1=$all system:authuser=rl
same "any user's read" "$(as u3 cat "$D/u1/g")" mine
refused "an anonymous read" anyone cat "$D/u1/g"
must as u1 python3 /acl.py "$D/u1" u1=$all system:anyuser=rl
as u1 sh -c "echo public >$D/u1/h" # anonymous rights on a file are cached with its status
same "anyone's read" "$(anyone cat "$D/u1/h")" public
must as u1 python3 /acl.py "$D/u1" u1=$all system:anyuser=rl -u3=r
same "anyone's read beside a negative right" "$(anyone cat "$D/u1/h")" public
refused "a read by the one who may not" as u3 cat "$D/u1/h"
refused "a name that nobody has" as u1 python3 /acl.py "$D/u1" u1=$all nobody-knows=rl

step "owners"
refused "giving a file away" as u1 chown 1002 "$D/u1/f"
must as admin chown 1002 "$D/u1/f"; same "its new owner" "$(as u1 stat -c %u "$D/u1/f")" 1002
must as u1 chmod 600 "$D/u1/f"; same mode "$(as u1 stat -c %a "$D/u1/f")" 600
must as u1 rm -r "$D/u1/f" "$D/u1/g"

step "many people at once"
for n in 1 2 3; do must as admin mkdir "$D/many$n"; must as admin python3 /acl.py "$D/many$n" u$n=$all; done
for n in 1 2 3; do ( as u$n sh -c "for i in \$(seq 50); do echo $n.\$i >$D/many$n/\$i || echo failed; done" >/many.$n 2>&1 ) & done; wait
for n in 1 2 3; do
    same "errors of u$n" "$(cat /many.$n)" ""
    same "files of u$n" "$(as u$n sh -c "cat $D/many$n/*" | sort -u | wc -l)" 50
    refused "the neighbour" as u$((n % 3 + 1)) ls "$D/many$n"
done
