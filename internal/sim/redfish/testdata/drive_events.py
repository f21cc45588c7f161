"""Subscribes to the events of a Redfish service with DMTF's redfish-utilities: URL, user, password and destination are arguments."""
import sys
import time

import redfish
import redfish_utilities

url, user, password, destination = sys.argv[1:]
with redfish.redfish_client(base_url=url, username=user, password=password) as service:
    made = redfish_utilities.create_event_subscription(service, destination, format="Event", client_context="of redfish-utilities")
    at = made.getheader("Location")
    mine = [s for s in redfish_utilities.get_event_subscriptions(service) if s["@odata.id"] == at]
    assert len(mine) == 1 and mine[0]["Destination"] == destination, mine
    target = redfish_utilities.get_event_service(service)["Actions"]["#EventService.SubmitTestEvent"]["target"]
    assert service.post(target, body={"MessageId": "ResourceEvent.1.3.TestMessage"}).status == 204
    time.sleep(2)  # for the message to be sent before it ends
    redfish_utilities.delete_event_subscription(service, mine[0]["Id"])
    assert not redfish_utilities.get_event_subscriptions(service)
