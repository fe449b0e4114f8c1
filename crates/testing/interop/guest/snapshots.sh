# The host makes snapshots of the volume, mounts them and rolls back, alternating with this script.
cd "$D" || exit 1
step "a snapshot"
echo old >f; mkdir d; echo deep >d/g; tell written; other mounted
echo new >f; echo late >late; rm d/g
same "the snapshot's file" "$(cat snap/f)" old
same "deeper in the snapshot" "$(cat snap/d/g)" deep
[ ! -e snap/late ] || fail "the snapshot has what was made later"
refused "writing into a snapshot" sh -c 'echo x >snap/f'
same "the volume's own file" "$(cat f)" new
tell seen; other rolled-back
step "rolled back under the mounted client"
same "the file" "$(cat f)" old
same "the deleted file" "$(cat d/g)" deep
[ ! -e late ] || fail "a file that was made later is still there"
[ ! -e snap ] || fail "a mount point that was made later is still there"
echo again >f; same "written after it" "$(cat f)" again
tell written-again; other mounted-again
same "the snapshot's file afterwards" "$(cat snap/f)" old
