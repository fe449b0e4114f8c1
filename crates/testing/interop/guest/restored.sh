# Dumps are restored over the mounted volume, each time in another way. What was cached before must not appear in place of
# what is written afterwards: a restore continues the data versions and uniquifiers of the contents that it replaces.
cd "$D" || exit 1
kept=0

# same_file NAME FILE WANTED. In one run of about thirty, kafs of Linux 6.1 shows one page from before the restore; why is not known. Such a
# page is counted and dropped, and the file is read again.
same_file() {
    if [ "$(cat $2)" != "$3" ]; then kept=$((kept + 1)); echo 1 >/proc/sys/vm/drop_caches; fi
    same "$1" "$(cat $2)" "$3"
}

for way in $WAYS; do
    step "$way"
    mkdir $way read-$way; echo AAAA >$way/x; echo a >$way/a; echo AAAA >read-$way/y; tell written-$way; other dumped-$way
    echo BBBB >$way/x; echo bbbb >$way/b; echo BBBB >read-$way/y; sync
    same "before the restore" "$(cat $way/x $way/b read-$way/y | tr '\n' ' ')" "BBBB bbbb BBBB "
    tell cached-$way; other restored-$way
    # This directory is read between the restore and the next change, the other one is not.
    same_file "after the restore" read-$way/y AAAA
    tell seen-$way; other stored-$way
    same_file "another client's content" $way/x CCCC
    same "another client's file" "$(cat $way/c)" cccc
    same "names" "$(ls $way | tr '\n' ' ')" "a c x "
    same "the file that was there before" "$(cat $way/a)" a
    same_file "another client's content, read before" read-$way/y CCCC
    echo DDDD >$way/x; sync; same "written afterwards" "$(cat $way/x)" DDDD
done
# A server that repeats data versions would have it keep the pages of each way.
same "at most one page was kept" "$((kept > 1))" 0
