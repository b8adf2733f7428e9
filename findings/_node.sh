# Sourced by findings: install_npm DIRECTORY PACKAGE ...
#
# Installs npm's packages in a directory, and Node.js among them where the machine's own is older than 22.19. Sets node.
# Exits with 2 where that cannot be done.
install_npm() {
    local work=$1
    shift
    node=node
    if ! node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major * 100 + +minor >= 2219 ? 0 : 1)'; then
        set -- node@22.23.3 "$@"
        node=$work/node_modules/.bin/node
    fi
    (cd "$work" && npm init -y && npm install --no-audit --no-fund "$@") >"$work/npm.log" 2>&1 || { cat "$work/npm.log"; exit 2; }
}
