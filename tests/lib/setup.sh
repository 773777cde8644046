# What the stages need beside the Rust toolchain. Sourced by tests/all; each function does its work once.

venv=$ONCILLA_CACHE/venv

need_system() {
  local wanted=() pair
  # command or file : Debian package
  for pair in kcat:kcat g++:g++ make:make java:openjdk-17-jdk-headless mvn:maven node:nodejs npm:npm go:golang-go \
    mkfs.ext4:e2fsprogs python3:python3 /usr/include/zlib.h:zlib1g-dev /usr/include/openssl/ssl.h:libssl-dev \
    /usr/include/rapidjson:rapidjson-dev; do
    local what=${pair%%:*}
    if [ -e "$what" ] || command -v "$what" > /dev/null; then continue; fi
    wanted+=("${pair##*:}")
  done
  python3 -c 'import ensurepip' 2> /dev/null || wanted+=(python3-venv)
  [ ${#wanted[@]} -eq 0 ] || apt_install "${wanted[@]}"
}

apt_install() { # PACKAGE...
  echo "installing $*"
  local sudo=
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  $sudo apt-get update -q > /dev/null
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qy --no-install-recommends "$@" > /dev/null
}

need_valgrind() { command -v valgrind > /dev/null || apt_install valgrind; }

need_python() {
  cmp -s tests/lib/requirements.txt "$venv/.installed" && return 0
  echo "installing Python packages"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r tests/lib/requirements.txt
  cp tests/lib/requirements.txt "$venv/.installed"
}

need_node() {
  local home=$ONCILLA_CACHE/node
  cmp -s tests/clients/kafkajs/package.json "$home/.installed" && return 0
  echo "installing kafkajs"
  mkdir -p "$home"
  cp tests/clients/kafkajs/package.json "$home/package.json"
  npm install --silent --no-audit --no-fund --prefix "$home"
  cp tests/clients/kafkajs/package.json "$home/.installed"
}

need_go() { (cd tests/clients/franz && GOFLAGS=-mod=mod go mod download); }

# librdkafka with its test runner, from the sources inside the crate rdkafka-sys.
need_librdkafka() {
  local home=$ONCILLA_CACHE/librdkafka
  # Without RapidJSON its test of transactional consumers is left out.
  [ -x "$home/tests/test-runner" ] && grep -q 'define WITH_RAPIDJSON 1' "$home/config.h" && return 0
  echo "building librdkafka's test runner"
  local fetch=$ONCILLA_CACHE/rdkafka-sys
  mkdir -p "$fetch/src"
  cat > "$fetch/Cargo.toml" <<'T'
[package]
name = "fetch"
version = "0.0.0"
edition = "2024"
[dependencies]
rdkafka-sys = "=4.10.0"
[workspace]
T
  : > "$fetch/src/lib.rs"
  (cd "$fetch" && cargo vendor -q vendor > /dev/null)
  rm -rf "$home"
  cp -r "$fetch/vendor/rdkafka-sys/librdkafka" "$home"
  (cd "$home" && bash ./configure --disable-curl --disable-sasl && make -j2 libs && make -j2 -C tests build &&
    make -C examples rdkafka_performance) \
    > "$ONCILLA_CACHE/librdkafka-build.log" 2>&1
}
