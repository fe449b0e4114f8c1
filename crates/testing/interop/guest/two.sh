# Two clients take turns; each immediately sees the other's changes, because callback promises are broken.
cd "$D" || exit 1
if [ "$ROLE" = one ]; then
    mkdir shared; echo 1 >shared/f; tell one-a; other two-a
    same "the other's content" "$(cat shared/f)" 2
    same "the other's file" "$(cat shared/g)" g
    mv shared/g shared/h; rm shared/f; tell one-b; other two-b
    same "the other's directory" "$(ls shared/sub)" "x"
    exec 9<shared/h; flock -x 9 || fail "lock"; tell one-c; other two-c; flock -u 9; tell one-d; other two-d
else
    other one-a; same "the first's content" "$(cat shared/f)" 1
    ls shared >/dev/null; echo 2 >shared/f; echo g >shared/g; tell two-a; other one-b
    same "renamed and removed" "$(ls shared)" h
    mkdir shared/sub; : >shared/sub/x; tell two-b; other one-c
    exec 9<shared/h; flock -n 9 && fail "the lock was given twice"; tell two-c; other one-d
    flock -w 100 9 || fail "the lock was not given back"; tell two-d
fi
