"""What a test asks the page of a story: JavaScript expressions."""

CLOCK = "parseFloat(document.getElementById('clock').textContent)"
ROLES = "[...document.querySelectorAll('.instance')].map((card) => card.dataset.role)"
NUM_FLOWS = "document.querySelectorAll('#flows .kv').length"
EVENTS = "[...document.querySelectorAll('#events button')].map((one) => one.textContent)"
