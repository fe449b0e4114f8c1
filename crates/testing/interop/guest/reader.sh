# Reads and compares an older file, in parallel with the script that follows. What is cached of a file is dropped each time, so
# that the data comes from the server: the pages, or with FORGET the whole cache of that client.
forget() { if [ -n "$FORGET" ]; then $FORGET "$1"; else dd if="$1" iflag=nocache count=0 status=none; fi; }
# read_back WHAT FILE WANTED: distinguishes wrong data from a failed read.
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
