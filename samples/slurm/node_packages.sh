#!/bin/bash
# Installs the libraries that mingpt and ddpxx load, beside LibTorch's, on a node with Ubuntu 24.04.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends libyaml-cpp0.8 libpcre2-8-0
