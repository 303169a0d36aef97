# The stage "user": the tests of what starts processes once more, as an ordinary user without any privilege. Sourced.
#
# The test binaries are built as root; the user needs no Go toolchain, for he has none in his PATH. Tests that need a helper
# process or the postern program re-execute their own binary (see TestMain in these packages), so the binary is all they need.
# It runs in a copy of the source tree, so that testdata and other files are where relative paths look for them.

# The uid of nobody on most systems; the number is used, so that no account is needed.
user_id=65534
user_packages=(sandbox executor cmd/postern)

stage_user() {
	[[ $(id -u) == 0 ]] || die "the stage user changes the uid, which needs root"
	[[ -e $work/root-results ]] || die "the stage user needs the results of the stage race: .ci/run race user"
	rm -f "$work/user-results"
	ordinary_tree
	local package
	for package in "${user_packages[@]}"; do
		if have "$package"; then user_tests "$package"; fi
	done
}

# ordinary_tree copies the source tree to where the ordinary user can read it, and gives him folders of his own.
ordinary_tree() {
	local tree=$work/tree
	rm -rf "$tree" "$work/user"
	mkdir -p "$tree"
	printf '+ copy the source tree to %q\n' "$tree"
	tar --exclude=./.git -cf - . | tar --no-same-owner -xf - -C "$tree"
	chmod -R u=rwX,go=rX "$tree"
	ordinary_folders
	as_user "$tree" test -r go.mod || die "uid $user_id cannot read $tree: choose a TMPDIR that everybody can enter"
}

# ordinary_folders makes the ordinary user's TMPDIR and HOME, once.
ordinary_folders() {
	mkdir -p "$work/user/tmp"
	chmod 0700 "$work/user/tmp"
	chown -R "$user_id:$user_id" "$work/user"
	[[ -z $user_home ]] || return 0
	# Commands in a sandbox have a /tmp of their own: what tests show to them must lie elsewhere.
	mkdir -p /srv
	user_home=$(mktemp -d /srv/postern-ci.XXXXXX)
	chmod 0755 "$user_home"
	chown "$user_id:$user_id" "$user_home"
}

# as_user runs a command in a folder as the ordinary user, with an environment of his own.
as_user() {
	local folder=$1
	shift
	(
		cd "$folder"
		exec setpriv --reuid "$user_id" --regid "$user_id" --clear-groups --inh-caps=-all \
			env -i CI=true HOME="$user_home" TMPDIR="$work/user/tmp" PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
	)
}

# user_tests runs one package and compares the number of tests that passed with root's.
user_tests() {
	local package=$1 binary root user
	binary=$work/tree/$package/user.test
	run go test -c -o "$binary" "./$package"
	[[ -e $binary ]] || return 0 # a package without tests
	chmod 0755 "$binary"
	printf '+ as uid %s in %s: ./user.test -test.v=test2json -test.timeout=5m\n' "$user_id" "$package"
	as_user "$work/tree/$package" ./user.test -test.v=test2json -test.timeout=5m 2>&1 |
		go tool test2json -p "$module/$package" | "$testlog" -module "$module" -record "$work/user-results"
	# What root's run did as an ordinary user is named so, and is run here once more: it does not count as root's.
	root=$(passed "$work/root-results" "$package" /user/)
	user=$(passed "$work/user-results" "$package")
	printf '%s: %d tests passed as root, %d as an ordinary user\n' "$package" "$root" "$user"
	((user * 10 >= root * 9)) || die "$package: fewer than 90 % of root's tests passed as an ordinary user"
}

# passed counts the tests of a package that passed, less those whose name holds a word.
passed() {
	[[ -e $1 ]] || { echo 0; return; }
	awk -F '\t' -v package="$2" -v less="${3:-}" '
		$1 == package && $3 == "pass" && !(less != "" && index($2, less)) { n++ }
		END { print n + 0 }' "$1"
}
