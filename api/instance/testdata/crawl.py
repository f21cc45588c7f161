"""Has cloud-init's EC2 data source read a metadata service: its address and the platform that it takes itself to be on
(unknown, or aws with session tokens) are arguments. Prints as JSON what it has understood."""
import json
import logging
import sys
import tempfile

from cloudinit import distros, helpers, settings
from cloudinit.sources import DataSourceEc2

url, platform = sys.argv[1:]
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
config = dict(settings.CFG_BUILTIN)
config["datasource"] = {"Ec2": {"metadata_urls": [url], "strict_id": False, "max_wait": 4, "timeout": 5}}
with tempfile.TemporaryDirectory() as folder:
    paths = helpers.Paths({"cloud_dir": folder, "run_dir": folder})
    source = DataSourceEc2.DataSourceEc2(config, distros.fetch("ubuntu")("ubuntu", config, paths), paths)
    source._cloud_name = platform
    source.distro.networking.settle = lambda *a, **k: None
    if not source._get_data():
        sys.exit("the data source has found nothing")
    print(json.dumps({
        "instance_id": source.get_instance_id(),
        "hostname": source.get_hostname().hostname,
        "zone": source.availability_zone,
        "version": source._crawled_metadata["_metadata_api_version"],
        "metadata": source.metadata,
        "user_data": (source.get_userdata_raw() or b"").decode(),
        "api_token": bool(source._api_token),
    }))
