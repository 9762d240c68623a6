"""The peer of bench/programs/s3_times.cpp: boto3's own transfers, with the parts and connections of ddpxx.

    s3_times.py upload BUCKET KEY BYTES     from memory; prints a line of JSON for each repetition
    s3_times.py download BUCKET KEY BYTES   into memory, of the object that upload has left; prints the same
"""
import io
import json
import sys
import time

import boto3
import boto3.s3.transfer

REPETITIONS = 3  # after one for warm-up
PART, CONNECTIONS = 16 << 20, 16


def main():
    operation, bucket, key, size = sys.argv[1:]
    content = (bytes(range(251)) * (int(size) // 251 + 1))[:int(size)]
    settings = boto3.s3.transfer.TransferConfig(multipart_threshold=PART, multipart_chunksize=PART,
                                                max_concurrency=CONNECTIONS)
    client = boto3.client("s3", config=boto3.session.Config(max_pool_connections=CONNECTIONS))
    for i in range(REPETITIONS + 1):
        memory = io.BytesIO(content if operation == "upload" else bytes(len(content)))
        begin = time.perf_counter()
        if operation == "upload":
            client.upload_fileobj(memory, bucket, key, Config=settings)
        else:
            client.download_fileobj(bucket, key, memory, Config=settings)
        took = time.perf_counter() - begin
        if operation == "download" and memory.getbuffer() != content:
            sys.exit("not what was uploaded")
        if i > 0:
            print(json.dumps({"ms": 1e3 * took, "bytes": len(content)}), flush=True)


main()
