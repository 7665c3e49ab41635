"""What training knows of Gymnasium environments: how they are made and measured, and what is said of them."""
