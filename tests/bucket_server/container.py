"""Makes a container: container.py URL_OF_ACCOUNT ACCOUNT KEY CONTAINER"""

import base64
import hashlib
import hmac
import sys
import urllib.request
from email.utils import formatdate

url, account, key, container = sys.argv[1:]
date, version = formatdate(usegmt=True), "2021-08-06"
# As Azure wants a request to be signed: the method, eleven empty headers, the x-ms headers, the resource.
path = "/" + url.split("/", 3)[3]
text = "\n".join(
    ["PUT", *[""] * 11, f"x-ms-date:{date}", f"x-ms-version:{version}", f"/{account}{path}/{container}", "restype:container"]
)
signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
request = urllib.request.Request(f"{url}/{container}?restype=container", method="PUT")
request.add_header("x-ms-date", date)
request.add_header("x-ms-version", version)
request.add_header("Authorization", f"SharedKey {account}:{signature}")
print(urllib.request.urlopen(request).status)
