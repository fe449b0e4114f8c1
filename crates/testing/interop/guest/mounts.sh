step "mount points to other volumes"
cd "$D" || exit 1
same "the other volume's file" "$(cat other/inside)" "in the other volume"
echo written >other/new; same "written through the mount point" "$(cat other/new)" written
same "volume" "$(python3 -c "import os; print(os.getxattr('$D/other', 'afs.volume').decode())")" other
refused "rename across volumes" python3 -c "import os; os.rename('$D/other/new', '$D/new')"
refused "hard link across volumes" python3 -c "import os; os.link('$D/other/new', '$D/new')"
same "parent" "$(ls "$D/other/..")" "$(ls "$D")"
step "a volume's quota"
if dd if=/dev/zero of=small/fill bs=64k count=64 2>/dev/null && sync small/fill 2>/dev/null; then fail "over quota was not refused"; fi
rm -f small/fill
echo fits >small/fits; same "after the refusal" "$(cat small/fits)" fits
