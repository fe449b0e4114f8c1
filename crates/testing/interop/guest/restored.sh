# Dumps are restored over the mounted volume, each time in another way. What was cached before must not appear in place of
# what is written afterwards: a restore continues the data versions and uniquifiers of the contents that it replaces.
cd "$D" || exit 1
for way in $WAYS; do
    step "$way"
    mkdir $way read-$way; echo AAAA >$way/x; echo a >$way/a; echo AAAA >read-$way/y; tell written-$way; other dumped-$way
    echo BBBB >$way/x; echo bbbb >$way/b; echo BBBB >read-$way/y; sync
    same "before the restore" "$(cat $way/x $way/b read-$way/y | tr '\n' ' ')" "BBBB bbbb BBBB "
    # The kernel does not invalidate pages that it has not put on its lists yet, for which it waits for more of them. A compaction does not wait.
    echo 1 >/proc/sys/vm/compact_memory
    tell cached-$way; other restored-$way
    # This directory is read between the restore and the next change, the other one is not.
    same "after the restore" "$(cat read-$way/y)" AAAA
    tell seen-$way; other stored-$way
    same "another client's content" "$(cat $way/x)" CCCC
    same "another client's file" "$(cat $way/c)" cccc
    same "names" "$(ls $way | tr '\n' ' ')" "a c x "
    same "the file that was there before" "$(cat $way/a)" a
    same "another client's content, read before" "$(cat read-$way/y)" CCCC
    echo DDDD >$way/x; sync; same "written afterwards" "$(cat $way/x)" DDDD
done
