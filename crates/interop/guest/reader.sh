# Reads and compares a file that was there before, beside the part that follows. What this client's caches have of a
# file is dropped each time, so that the server is asked.
forget() { dd if="$1" iflag=nocache count=0 status=none; }
# read_back WHAT FILE WANTED: what is read is told apart from what cannot be read.
read_back() {
    if error=$(forget "$2" 2>&1) && error=$(cat "$2" 2>&1 >"$3.got"); then
        if cmp -s "$3" "$3.got"; then echo "read $1"; else echo "WRONG $1: $(head -c 60 "$3.got")"; fi
    else
        echo "unread $1: $error"
        sleep 0.2
    fi
}
seq -f 'line %.0f that was there before' 1 5000 >"$S/before"
{ cp "$S/before" "$D/before" && sync "$D/before"; } || fail "the file that is there before"
while [ ! -e /out/stop ]; do read_back before "$D/before" "$S/before"; done &
