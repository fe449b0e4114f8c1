# A client that stays mounted while its server restarts.
cd "$D" || exit 1
mkdir keep; echo before >keep/file; exec 7<keep/file
sync
echo "client ready"
while [ ! -e /out/restarted ]; do sleep 0.2; done
same "cached" "$(cat keep/file)" before
echo after >keep/second || fail "write after the restart"
same "new file" "$(cat keep/second)" after
same "open file" "$(cat <&7)" before
same "listing" "$(ls keep | tr '\n' ' ')" "file second "
exec 7<&-
must rm -r keep
