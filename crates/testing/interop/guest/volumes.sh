# Reads and writes volumes that the host releases, removes and makes anew, in parallel with the scripts that follow. $CELLROOT
# is the root directory of the cell.
for mount in "data data -rw" "soft soft -rw" "soft.ro soft.readonly" "gone gone -rw"; do
    set -- $mount; must fs mkmount -dir "$CELLROOT/$1" -vol "$2" $3
done
volumes() {
    for n in $(seq "$RELEASES"); do
        echo "version $n" >"$CELLROOT/soft/version" || fail "version $n"
        tell "written-$n"; other "released-$n"
        same "release $n" "$(cat "$CELLROOT/soft.ro/version")" "version $n"
    done
    for site in 1 2; do
        tell "reading-$site"; other "removed-$site"
        must fs flushvolume "$CELLROOT/soft.ro"
        same "without site $site" "$(cat "$CELLROOT/soft.ro/version")" "version $RELEASES"
        tell "read-$site"; other "again-$site"
        same "with site $site again" "$(cat "$CELLROOT/soft.ro/version")" "version $RELEASES"
    done
    echo here >"$CELLROOT/gone/file" || fail "the file in a volume to remove"
    exec 7<"$CELLROOT/gone/file"
    tell present; other gone
    fs flushvolume "$CELLROOT/gone" 2>/dev/null # refused if the client knows already
    refused "a file of the removed volume" timeout 100 cat "$CELLROOT/gone/file"
    refused "a new file in the removed volume" timeout 100 sh -c "echo new >$CELLROOT/gone/new"
    refused "the open file" timeout 100 cat <&7
    exec 7<&-
    tell missed; other made
    must fs checkvolumes
    echo again >"$CELLROOT/gone/file" || fail "the file in the new volume"
    same "the new volume" "$(ls "$CELLROOT/gone") $(cat "$CELLROOT/gone/file")" "file again"
    echo "volumes done: $failures failed"
}
volumes &
