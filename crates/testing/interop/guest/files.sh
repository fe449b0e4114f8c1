step "create, read back, overwrite, append"
cd "$D" || exit 1
rm -rf work; must mkdir work; cd work || exit 1
echo hello >a; same content "$(cat a)" hello
echo again >a; same overwritten "$(cat a)" again
echo more >>a; same appended "$(cat a)" "again
more"
: >empty; same empty "$(size empty)" 0

step "truncate shorter and longer"
dd if=/dev/urandom of="$S/random" bs=1000 count=300 2>/dev/null
cp "$S/random" r; same copied "$(digest r)" "$(digest "$S/random")"
truncate -s 123456 r; truncate -s 123456 "$S/random"; same shorter "$(digest r)" "$(digest "$S/random")"
truncate -s 400000 r; truncate -s 400000 "$S/random"; same longer "$(digest r)" "$(digest "$S/random")"
truncate -s 0 r; same emptied "$(size r)" 0

step "a change in the middle"
dd if=/dev/urandom of="$S/big" bs=4096 count=500 2>/dev/null; cp "$S/big" big
dd if="$S/random" of=big bs=1000 seek=700 count=9 conv=notrunc 2>/dev/null
dd if="$S/random" of="$S/big" bs=1000 seek=700 count=9 conv=notrunc 2>/dev/null
sync; same patched "$(digest big)" "$(digest "$S/big")"

step "sparse files"
dd if=/dev/zero of=hole bs=1 count=1 seek=50000000 2>/dev/null
dd if="$S/random" of=hole bs=1000 seek=20000 count=1 conv=notrunc 2>/dev/null
dd if=/dev/zero of="$S/hole" bs=1 count=1 seek=50000000 2>/dev/null
dd if="$S/random" of="$S/hole" bs=1000 seek=20000 count=1 conv=notrunc 2>/dev/null
same sparse-size "$(size hole)" 50000001
same sparse "$(digest hole)" "$(digest "$S/hole")"; rm -f hole "$S/hole"

step "rename within and across directories"
mkdir d1 d2; echo x >d1/f
must mv d1/f d1/g; same renamed "$(cat d1/g)" x
must mv d1/g d2/h; same moved "$(cat d2/h)" x; same gone "$(ls d1)" ""
echo y >d2/i; must mv d2/i d2/h; same replaced "$(cat d2/h)" y
mkdir d1/sub; echo z >d1/sub/z; must mv d1/sub d2/sub; same dir-moved "$(cat d2/sub/z)" z
same parent "$(ls d2/sub/..)" "h
sub"
refused "rename onto a directory that is not empty" sh -c 'mkdir d3; mv -T d3 d2'
refused "rename into itself" mv d2 d2/sub/inside

step "directories"
refused "remove a directory that is not empty" rmdir d2
must mkdir -p deep/a/b/c/d/e; must rmdir deep/a/b/c/d/e
refused "create where something is" mkdir d1
refused "list what is not there" ls nothing
same links "$(stat -c %h d2)" 3

step "hard links"
echo one >l1; must ln l1 l2; same linked "$(cat l2)" one
same count "$(stat -c %h l1)" 2
echo two >>l2; same both "$(cat l1)" "one
two"
must rm l1; same left "$(cat l2)" "one
two"; same count "$(stat -c %h l2)" 1

step "symbolic links"
must ln -s l2 s; same through "$(cat s)" "one
two"; same target "$(readlink s)" l2
must ln -s ../d2/h d1/s2; same relative "$(cat d1/s2)" y
must ln -s /nonexistent/path dangling; same dangling "$(readlink dangling)" /nonexistent/path
long=$(printf '%0800d' 0); must ln -s "$long" longlink; same long "$(readlink longlink)" "$long"

step "names"
name=$(printf '%0255d' 7); echo n >"$name"; same long-name "$(cat "$name")" n
refused "a name of 256 bytes" sh -c "echo n >\$(printf %0256d 7)"
for name in 'Grüße.txt' '日本語' 'with space' "quote'\"" '-dash' '.hidden' 'back\slash' 'tab	tab'; do
    echo "$name" >"./$name"; same "name $name" "$(cat "./$name")" "$name"
    ls -A | grep -qF -- "$name" || fail "the name $name is not listed"
done

step "modes and times"
chmod 640 a; same mode "$(stat -c %a a)" 640
touch -d @1000000000 a; same mtime "$(stat -c %Y a)" 1000000000
chmod 755 d1; same mode "$(stat -c %a d1)" 755

step "statfs"
df -P . | tail -1 | grep -q '[0-9]' || fail "df"

step "flock"
( flock -x 9; same "lock held" "$(flock -n l2 echo taken || echo busy)" busy; exit $failures ) 9<l2; failures=$?
same "lock free" "$(flock -n l2 echo taken)" taken

step "unlinked but open"
( exec 8<big; rm big; same "open file" "$(sha256sum <&8 | cut -d' ' -f1)" "$(digest "$S/big")"; exit $failures ); failures=$?
refused "unlinked" cat big

step "many files in one directory"
mkdir many; i=0; while [ $i -lt $MANY ]; do : >"many/file-$i"; i=$((i + 1)); done
same many "$(ls many | wc -l)" "$MANY"
must mv many/file-77 many/renamed; must rm many/file-78
same many "$(ls many | wc -l)" "$((MANY - 1))"
[ -e many/renamed ] && [ ! -e many/file-77 ] || fail "rename among many"
rm -rf many; [ -e many ] && fail "rm -rf many"
cd ..; rm -rf work; [ -e work ] && fail "rm -rf work"
