from edpbrl_gym.study.web.app import create_app as create_app
from edpbrl_gym.study.web.server import make_server as make_server
