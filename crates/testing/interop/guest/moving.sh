# A client that writes, reads and renames while its volume moves from server to server. $STOP ends it.
cd "$D" || exit 1
mkdir keep
echo before >keep/file
exec 7<keep/file
sync
echo "mover ready"
n=0
while [ ! -e "$STOP" ] && [ $n -lt 100000 ]; do
    n=$((n + 1))
    text="record $(printf %06d $n)"
    # A file counts once it is closed: then the server has it.
    if ! { echo "$text" >"$D/new" && mv "$D/new" "$D/record.$n"; }; then fail "record $n was not written"; break; fi
    echo "acknowledged $n"
    same "record $n" "$(cat "$D/record.$n")" "$text"
    old=$((n / 2 + 1))
    same "record $old" "$(cat "$D/record.$old" 2>/dev/null)" "record $(printf %06d $old)"
    [ $failures -lt 5 ] || break
done
same "the open file" "$(cat <&7)" before
exec 7<&-
same "names" "$(ls "$D" | grep -c '^record')" $n
echo "mover done: $n records"
