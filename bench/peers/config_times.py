"""The peer of config_times: Hydra composes the same values from the same file and overrides repeatedly."""
import json
import os
import statistics
import sys
import time

sys.path.insert(0, sys.argv[1])  # the folder into which the benchmark has installed Hydra
import hydra  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402


def compose(folder, name, overrides):
    begin = time.perf_counter()
    with hydra.initialize_config_dir(folder, version_base=None):
        config = OmegaConf.to_container(hydra.compose(name, overrides), resolve=True)
    elapsed = (time.perf_counter() - begin) * 1e3
    assert config["part0"]["seed"] == 5
    return elapsed


path, *overrides = sys.argv[2:]
folder, name = os.path.split(os.path.abspath(path))
first = compose(folder, name, overrides)
print(json.dumps({"first_ms": first, "later_ms": statistics.median(compose(folder, name, overrides) for _ in range(5))}))
