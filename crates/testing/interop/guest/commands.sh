# Runs the lines of /commands one after another, with admin's token, each marked with its number and exit status.
if [ -z "$IN_PAG" ]; then export IN_PAG=1; exec pagsh.openafs -c "exec sh $0"; fi
aklog -d -c "$CELL" -k "$REALM" -keytab /rxkad.keytab -principal admin || fail "no token"
number=0
while IFS= read -r line <&3; do
    printf '\n@@ %s\n' $number
    bash -c "$line" </dev/null 3<&- 2>&1
    printf '\n@@ status %s\n' $?
    number=$((number + 1))
done 3</commands
